package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/agent"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A program that serves an agent beside its own locks. The clients can be in any language.
func ExampleNew() {
	ctx := context.Background()
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(agent.New(locks, &agent.Options{MaxOpen: 1000}))
	defer server.Close()
	defer locks.Close(ctx) // before the server, so that clients are told

	// What a client does.
	lock, err := http.Get(server.URL + "/v1/locks/invoices")
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(lock.Body)
	lines.Scan()
	fmt.Printf("%.18s\n", lines.Text())
	_, err = locks.Mutex("invoices").TryHold(ctx)
	fmt.Println(err != nil)

	lock.Body.Close() // free
	locks.Mutex("invoices").Lock()
	fmt.Println("locked")
	// Output:
	// {"held":"invoices"
	// true
	// locked
}
