package proxy

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// NewBalancer starts a load balancer on a free loopback port in front of routers (host:port). It is stopped at the end
// of the test. It distributes connections over the routers in turn. It adds the router's serviceId to the first reply
// on each connection, the reply to hello. Routers from 5.0 on do the same behind a load balancer. Clients with
// loadBalanced=true require the serviceId.
func NewBalancer(t testing.TB, routers ...string) *Proxy {
	t.Helper()
	var routes []route
	for _, addr := range routers {
		routes = append(routes, route{upstream: addr, service: bson.NewObjectID()})
	}
	return start(t, listen(t), NewNetwork(t), routes...)
}
