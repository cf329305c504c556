package mongod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// defaultName is the default name of a replica set.
const defaultName = "rs0"

// key is the secret that the processes use to authenticate to each other if access control is on.
const key = "bGVhc2Vob2xk"

// A Set is a standalone or a replica set of mongod processes.
type Set struct {
	spec    Spec
	dir     string
	members []*Member
}

// Start starts the servers that spec describes, using the program at path. It returns when writes are possible and all
// members are ready. The processes run until [Set.Stop], even if ctx ends.
func Start(ctx context.Context, path string, spec Spec) (_ *Set, err error) {
	dir, err := os.MkdirTemp(spec.Dir, "leasehold-mongod-")
	if err != nil {
		return nil, err
	}
	set := &Set{spec: spec, dir: dir}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, set.tail())
			set.Stop()
		}
	}()

	ports, err := spawn.FreePorts(max(1, spec.Members))
	if err != nil {
		return nil, err
	}
	var keyFile string
	if spec.Auth && spec.Members > 0 {
		if keyFile, err = writeKey(dir); err != nil {
			return nil, err
		}
	}
	for i, port := range ports {
		m := &Member{Addr: "127.0.0.1:" + port, path: path, env: spec.Env, dir: filepath.Join(dir, fmt.Sprint(i))}
		m.name = m.Addr
		if spec.Announce != nil {
			m.name = spec.Announce(m.Addr)
		}
		if err := os.Mkdir(m.dir, 0o700); err != nil {
			return nil, err
		}
		m.args = append([]string{
			"--bind_ip", "127.0.0.1", "--port", port, "--nounixsocket",
			"--dbpath", m.dir, "--logpath", filepath.Join(m.dir, "log"), "--logappend",
		}, spec.Args...)
		if spec.Members > 0 {
			m.args = append(m.args, "--replSet", set.Name())
		}
		if spec.role != "" {
			m.args = append(m.args, "--"+spec.role)
		}
		switch {
		case keyFile != "":
			m.args = append(m.args, "--keyFile", keyFile)
		case spec.Auth:
			m.args = append(m.args, "--auth")
		}
		if err := m.Start(); err != nil {
			return nil, err
		}
		set.members = append(set.members, m)
	}
	for _, m := range set.members {
		if err := m.ping(ctx); err != nil {
			return nil, fmt.Errorf("mongod on %s: %w", m.Addr, err)
		}
	}
	if spec.Members > 0 {
		if err := set.initiate(ctx); err != nil {
			return nil, err
		}
	}
	if spec.Auth {
		if err := set.createRoot(ctx); err != nil {
			return nil, err
		}
	}
	if spec.Members > 0 {
		if err := set.ready(ctx); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// URI returns the connection string for the whole set.
func (s *Set) URI() string { return s.URIAs(s.user()) }

// URIAs returns the connection string for the given user, such as "user:password@".
func (s *Set) URIAs(user string) string {
	var names []string
	for _, m := range s.members {
		names = append(names, m.name)
	}
	uri := "mongodb://" + user + strings.Join(names, ",") + "/"
	if s.spec.Members > 0 {
		return uri + "?replicaSet=" + s.Name()
	}
	return uri + "?directConnection=true"
}

// Members returns the processes.
func (s *Set) Members() []*Member { return s.members }

// Stop ends the processes and removes their files.
func (s *Set) Stop() {
	var all sync.WaitGroup
	for _, m := range s.members {
		all.Go(func() { m.Kill() })
	}
	all.Wait()
	os.RemoveAll(s.dir)
}

// Primary returns a member that reports that it is primary. If the primary is cut off from the other members, it may go
// on reporting this until it notices that they have elected another one.
func (s *Set) Primary(ctx context.Context) (*Member, error) {
	for {
		for _, m := range s.members {
			var hello struct {
				Writable bool `bson:"isWritablePrimary"`
			}
			try, cancel := context.WithTimeout(ctx, time.Second)
			err := m.run(try, "", bson.D{{Key: "hello", Value: 1}}, &hello)
			cancel()
			if err == nil && hello.Writable {
				return m, nil
			}
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("no primary: %w", err)
		}
	}
}

// StepDown makes the primary step down in favour of another member, as an operator does for maintenance.
func (s *Set) StepDown(ctx context.Context) error {
	m, err := s.Primary(ctx)
	if err != nil {
		return err
	}
	return m.run(ctx, s.user(), bson.D{{Key: "replSetStepDown", Value: 30}, {Key: "secondaryCatchUpPeriodSecs", Value: 25}}, nil)
}

// Rollbacks returns how many rollbacks the members have had since the set was started.
func (s *Set) Rollbacks(ctx context.Context) (n int, err error) {
	for _, m := range s.members {
		var reply struct {
			RBID int // from 1 on
		}
		if err := m.run(ctx, s.user(), bson.D{{Key: "replSetGetRBID", Value: 1}}, &reply); err != nil {
			return 0, err
		}
		n += reply.RBID - 1
	}
	return n, nil
}

// Name returns the name of the replica set.
func (s *Set) Name() string { return cmp.Or(s.spec.name, defaultName) }

// user returns the user who has all privileges, as part of a URI.
func (s *Set) user() string { return root(s.spec.Auth) }

func root(auth bool) string {
	if auth {
		return "root:root@"
	}
	return ""
}

// writeKey writes the key to a file in dir and returns the file's name.
func writeKey(dir string) (string, error) {
	file := filepath.Join(dir, "key")
	return file, os.WriteFile(file, []byte(key), 0o400)
}

func (s *Set) initiate(ctx context.Context) error {
	var members bson.A
	for i, m := range s.members {
		arbiter := s.spec.Arbiter && i == len(s.members)-1
		members = append(members, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: m.name}, {Key: "arbiterOnly", Value: arbiter}})
	}
	config := bson.D{{Key: "_id", Value: s.Name()}, {Key: "members", Value: members}}
	if s.spec.role == configServer {
		config = append(config, bson.E{Key: "configsvr", Value: true})
	}
	if s.spec.ElectionTimeout > 0 {
		config = append(config, bson.E{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: s.spec.ElectionTimeout.Milliseconds()},
			{Key: "heartbeatIntervalMillis", Value: min(2*time.Second, s.spec.ElectionTimeout/2).Milliseconds()},
		}})
	}
	if err := s.members[0].run(ctx, "", bson.D{{Key: "replSetInitiate", Value: config}}, nil); err != nil {
		return fmt.Errorf("replSetInitiate: %w", err)
	}
	_, err := s.Primary(ctx)
	return err
}

// createRoot creates the first user. MongoDB's localhost exception permits this without a login.
func (s *Set) createRoot(ctx context.Context) error {
	m, err := s.Primary(ctx)
	if err != nil {
		return err
	}
	return m.run(ctx, "", bson.D{
		{Key: "createUser", Value: "root"}, {Key: "pwd", Value: "root"},
		{Key: "roles", Value: bson.A{"root"}},
	}, nil)
}

// ready waits until every member is a primary, a secondary or an arbiter. A member that is still starting could not
// confirm writes.
func (s *Set) ready(ctx context.Context) error {
	for {
		var status struct {
			Members []struct {
				State int `bson:"state"`
			} `bson:"members"`
		}
		m, err := s.Primary(ctx)
		if err != nil {
			return err
		}
		err = m.run(ctx, s.user(), bson.D{{Key: "replSetGetStatus", Value: 1}}, &status)
		ready := 0
		for _, m := range status.Members {
			if m.State == 1 || m.State == 2 || m.State == 7 {
				ready++
			}
		}
		if err == nil && ready == len(s.members) {
			return nil
		}
		if sleepErr := sleep(ctx, 100*time.Millisecond); sleepErr != nil {
			return fmt.Errorf("%d of %d members ready: %w", ready, len(s.members), errors.Join(sleepErr, err))
		}
	}
}

// tail returns the last lines of the members' logs, for error messages.
func (s *Set) tail() string { return tail(s.members) }

func tail(members []*Member) string {
	var b strings.Builder
	for _, m := range members {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		out, _ := os.ReadFile(filepath.Join(m.dir, "out"))
		for _, text := range [][]byte{log, out} {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			for _, l := range lines[max(0, len(lines)-5):] {
				if len(l) > 300 {
					l = l[:300]
				}
				b.WriteString("\n\t" + l)
			}
		}
	}
	return b.String()
}
