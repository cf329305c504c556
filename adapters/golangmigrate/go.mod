module github.com/leasehold-go/leasehold/adapters/golangmigrate

go 1.25.0

require (
	github.com/golang-migrate/migrate/v4 v4.19.1
	github.com/leasehold-go/leasehold v0.1.0
)

require github.com/rs/xid v1.6.0 // indirect
