package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An Image is what Docker runs.
type Image struct {
	Repository, Tag string
	Cmd             []string
}

// imageFromEnv is mongo:8 as a replica set of one, unless the environment says
// something else.
func imageFromEnv() Image {
	im := Image{
		Repository: os.Getenv("LEASEHOLD_IMAGE_REPOSITORY"),
		Tag:        os.Getenv("LEASEHOLD_IMAGE_TAG"),
		Cmd:        strings.Fields(os.Getenv("LEASEHOLD_IMAGE_CMD")),
	}
	if im.Repository == "" {
		im.Repository = "mongo"
		if im.Tag == "" {
			im.Tag = "8"
		}
		if im.Cmd == nil {
			im.Cmd = []string{"--replSet", setName, "--bind_ip_all"}
		}
	}
	if im.Tag == "" {
		im.Tag = "latest"
	}
	return im
}

func (im Image) String() string { return im.Repository + ":" + im.Tag }

// A Container is a server in a container of this run.
type Container struct {
	URI string

	pool *dockertest.Pool
	res  *dockertest.Resource
}

// startContainer returns when the server in the container takes writes.
func startContainer(ctx context.Context, im Image) (_ *Container, err error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, fmt.Errorf("no Docker answers: %w", err)
	}
	res, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository:   im.Repository,
		Tag:          im.Tag,
		Cmd:          im.Cmd,
		ExposedPorts: []string{"27017/tcp"},
	}, func(c *docker.HostConfig) {
		c.AutoRemove = true
	})
	if err != nil {
		if _, there := pool.Client.InspectImage(im.String()); there != nil {
			err = errors.New("it is not on this machine, and Docker can't pull it") // the reason names hosts; docker pull tells
		}
		return nil, fmt.Errorf("image %s: %w", im, err)
	}
	c := &Container{
		URI:  "mongodb://" + res.GetHostPort("27017/tcp") + "/?directConnection=true",
		pool: pool,
		res:  res,
	}
	defer func() {
		if err != nil {
			c.Remove()
		}
	}()
	res.Expire(3600) // if this process dies without having removed it

	pool.MaxWait = 90 * time.Second
	return c, pool.Retry(func() error { return c.ready(ctx) })
}

// ready starts the replica set if the server waits for that, and fails until
// the server takes writes.
func (c *Container) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(c.URI).SetServerSelectionTimeout(2 * time.Second))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	admin := client.Database("admin")
	var hello struct {
		Writable bool `bson:"isWritablePrimary"`
		Waits    bool `bson:"isreplicaset"`
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return err
	}
	if hello.Waits {
		config := bson.D{{Key: "_id", Value: setName}, {Key: "members", Value: bson.A{
			bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: "127.0.0.1:27017"}},
		}}}
		if err := admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: config}}).Err(); err != nil {
			return err
		}
	}
	if !hello.Writable {
		return fmt.Errorf("%s does not take writes yet", c.URI)
	}
	return nil
}

// Pause freezes every process in the container.
func (c *Container) Pause() error { return c.pool.Client.PauseContainer(c.res.Container.ID) }

// Unpause lets a paused container go on.
func (c *Container) Unpause() error { return c.pool.Client.UnpauseContainer(c.res.Container.ID) }

// Remove kills and removes the container.
func (c *Container) Remove() error { return c.pool.Purge(c.res) }
