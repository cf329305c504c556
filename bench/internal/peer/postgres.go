package peer

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// Postgres is PostgreSQL's session-level advisory locks through pgx, as a [measure.System]. The server keeps them only
// in memory, without a TTL. When it notices that a connection is closed, it frees that connection's locks.
type Postgres struct{ URI string }

var _ measure.System = (*Postgres)(nil)

// Open implements [measure.System].
func (p *Postgres) Open(context.Context) (measure.Process, error) {
	return &postgresProcess{uri: p.URI}, nil
}

type postgresProcess struct {
	uri string

	mu    sync.Mutex
	conns []*pgx.Conn
}

// Locker makes a connection for each lock, because a lock belongs to its connection.
func (p *postgresProcess) Locker(ctx context.Context, key string) (measure.Locker, error) {
	conn, err := pgx.Connect(ctx, p.uri)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conn)
	return &postgresLocker{conn, key}, nil
}

func (p *postgresProcess) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.conns {
		errs = append(errs, c.Close(context.Background()))
	}
	return errors.Join(errs...)
}

type postgresLocker struct {
	conn *pgx.Conn
	key  string
}

func (l *postgresLocker) Lock(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", l.key)
	return err
}

func (l *postgresLocker) Unlock(ctx context.Context) error {
	var had bool
	if err := l.conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", l.key).Scan(&had); err != nil {
		return err
	}
	if !had {
		return errors.New("pg_advisory_unlock returned false: the key was not locked")
	}
	return nil
}
