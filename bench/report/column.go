package main

// A column is what is measured on.
type column int

const (
	one column = iota // this library, on one member or on MONGODB_URI
	three
	mongoLock // github.com/square/mongo-lock, on the same server as one
	etcd
	postgres
	redis
	columns
)

func (c column) String() string {
	return [columns]string{"one member", "three members", "mongo-lock", "etcd", "PostgreSQL", "Redis"}[c]
}
