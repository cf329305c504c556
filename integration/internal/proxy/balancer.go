package proxy

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// NewBalancer starts a load balancer on a free loopback port in front of routers (host:port). It
// ends with the test. Connections go to the routers in turn. In the first reply on each connection,
// that to hello, it adds the router's serviceId: routers from 5.0 on do that behind a load
// balancer, and clients with loadBalanced=true require it.
func NewBalancer(t testing.TB, routers ...string) *Proxy {
	t.Helper()
	var routes []route
	for _, addr := range routers {
		routes = append(routes, route{upstream: addr, service: bson.NewObjectID()})
	}
	return start(t, listen(t), NewNetwork(t), routes...)
}
