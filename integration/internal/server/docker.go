package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// setName names the replica set in a container.
const setName = "rs0"

// An Image is a container image together with its command line.
type Image struct {
	Repository, Tag string
	Cmd             []string
}

// imageFromEnv returns the image that the environment names; by default, mongo:8 as a replica set
// of one.
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
		if len(im.Cmd) == 0 {
			im.Cmd = []string{"--replSet", setName, "--bind_ip_all"}
		}
	}
	if im.Tag == "" {
		im.Tag = "latest"
	}
	return im
}

func (im Image) String() string { return im.Repository + ":" + im.Tag }

// A Container is a server in a container that this run started.
type Container struct {
	URI string

	pool *dockertest.Pool
	res  *dockertest.Resource
	net  *dockertest.Network // the container's own network; nil for the default network
}

// startContainer starts a container and returns when its server accepts writes. An isolated
// container has its own network, so that a test can disconnect it. It is not removed when it
// is killed.
func startContainer(ctx context.Context, im Image, isolated bool) (_ *Container, err error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, fmt.Errorf("docker does not answer: %w", err)
	}
	c := &Container{pool: pool}
	defer func() {
		if err != nil {
			c.Remove()
		}
	}()
	run := &dockertest.RunOptions{
		Repository:   im.Repository,
		Tag:          im.Tag,
		Cmd:          im.Cmd,
		ExposedPorts: []string{"27017/tcp"},
	}
	if isolated {
		if c.net, err = pool.CreateNetwork(fmt.Sprintf("leasehold-%d-%d", os.Getpid(), networks.Add(1))); err != nil {
			return nil, fmt.Errorf("network: %w", err)
		}
		run.Networks = []*dockertest.Network{c.net}
	}
	c.res, err = pool.RunWithOptions(run, func(c *docker.HostConfig) {
		c.AutoRemove = !isolated
	})
	if err != nil {
		if _, there := pool.Client.InspectImage(im.String()); there != nil {
			err = errors.New("it is not on this machine, and Docker can't pull it; docker pull shows the reason") // Docker's own reason would name hosts
		}
		return nil, fmt.Errorf("image %s: %w", im, err)
	}
	addr := c.res.GetHostPort("27017/tcp")
	if isolated {
		// Don't publish a port. Its number could change after a restart. While the network is disconnected, the port
		// would refuse connections, but a server that is lost gives no answer at all.
		addr = c.res.GetIPInNetwork(c.net) + ":27017"
	}
	c.URI = "mongodb://" + addr + "/?directConnection=true"
	return c, c.await(ctx)
}

// networks counts the networks that this process has created. A network's name contains its
// number.
var networks atomic.Int64

// await waits until the server accepts writes.
func (c *Container) await(ctx context.Context) error {
	c.res.Expire(3 * 3600) // in case this process dies before it removes the container
	c.pool.MaxWait = 90 * time.Second
	return c.pool.Retry(func() error { return c.ready(ctx) })
}

// ready initiates the replica set if necessary, and returns an error until the server accepts
// writes.
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
		return fmt.Errorf("%s does not accept writes yet", c.URI)
	}
	return nil
}

// Pause freezes every process in the container. It retries if Docker returns an error, because
// Docker can't always freeze busy processes at once.
func (c *Container) Pause() error {
	return c.pool.Retry(func() error { return c.pool.Client.PauseContainer(c.res.Container.ID) })
}

// Unpause continues a paused container.
func (c *Container) Unpause() error { return c.pool.Client.UnpauseContainer(c.res.Container.ID) }

// Kill kills every process in an isolated container with SIGKILL.
func (c *Container) Kill() error {
	id := c.res.Container.ID
	if err := c.pool.Client.KillContainer(docker.KillContainerOptions{ID: id, Signal: docker.SIGKILL}); err != nil {
		return err
	}
	_, err := c.pool.Client.WaitContainer(id)
	return err
}

// Restart starts a killed container again with its old data, and waits until it accepts writes.
func (c *Container) Restart(ctx context.Context) error {
	if err := c.pool.Client.StartContainer(c.res.Container.ID, nil); err != nil {
		return err
	}
	if err := c.same(); err != nil {
		return err
	}
	return c.await(ctx)
}

// Disconnect cuts off an isolated container, so that messages to it get no answer.
func (c *Container) Disconnect() error {
	return c.pool.Client.DisconnectNetwork(c.net.Network.ID, docker.NetworkConnectionOptions{Container: c.res.Container.ID})
}

// Connect undoes Disconnect.
func (c *Container) Connect() error {
	err := c.pool.Client.ConnectNetwork(c.net.Network.ID, docker.NetworkConnectionOptions{Container: c.res.Container.ID})
	if err != nil {
		return err
	}
	return c.same()
}

// c.same checks that the container still has the address in URI. It should, because it is alone
// on its network.
func (c *Container) same() error {
	now, err := c.pool.Client.InspectContainer(c.res.Container.ID)
	if err != nil {
		return err
	}
	for _, n := range now.NetworkSettings.Networks {
		if strings.Contains(c.URI, "//"+n.IPAddress+":") {
			return nil
		}
	}
	return fmt.Errorf("the container is no longer at %s", c.URI)
}

// Remove kills and removes the container, and its network.
func (c *Container) Remove() error {
	var errs []error
	if c.res != nil {
		errs = append(errs, c.pool.Purge(c.res))
	}
	if c.net != nil {
		errs = append(errs, c.pool.RemoveNetwork(c.net))
	}
	return errors.Join(errs...)
}
