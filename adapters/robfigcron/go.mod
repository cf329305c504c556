module github.com/leasehold-go/leasehold/adapters/robfigcron

go 1.25.0

require (
	github.com/leasehold-go/leasehold v0.1.0
	github.com/robfig/cron/v3 v3.0.1
)

require github.com/rs/xid v1.6.0 // indirect
