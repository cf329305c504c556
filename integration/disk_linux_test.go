package integration_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The disk of the only server fills up, and mongod exits. When space has been freed and
// mongod is started again, all sessions continue.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, s *server.Server) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
			lab.Skip(t, s, "no right to mount a small disk: "+err.Error())
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		own := lab.Start(t, mongod.Spec{Members: 1, Dir: dir, Args: []string{
			"--wiredTigerEngineConfigString", "log=(file_max=1MB,prealloc=false)", // otherwise the log alone would use 200 MB
		}})
		node, filler := own.Set().Members()[0], filepath.Join(dir, "filler")
		coll := own.Client(t, options.Client().SetTimeout(2*time.Second)).Database(own.Database(t)).Collection("app")
		insert := func() error {
			_, err := coll.InsertOne(t.Context(), bson.D{{Key: "text", Value: make([]byte, 1<<20)}})
			return err
		}
		noErr(t, insert())
		outage(t, own, "mongo: heartbeat",
			func() {
				f, err := os.Create(filler)
				noErr(t, err)
				defer f.Close()
				if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("the disk is not full: %v", err)
				}
				eventually(t, "mongod has exited, or hangs while it exits", func() bool {
					err := insert()
					return mongo.IsNetworkError(err) || mongo.IsTimeout(err)
				})
			},
			func() {
				node.Kill()
				noErr(t, os.Remove(filler))
				noErr(t, node.Start())
			})
	})
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
