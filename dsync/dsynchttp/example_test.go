package dsynchttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func Example() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil) // or Open of dsync/mongo
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(context.Background())

	// While somebody looks at the page, it reads the store every ten seconds.
	page := dsynchttp.New(locks, &dsynchttp.Options{Refresh: 10 * time.Second})
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/debug/leasehold/", http.StripPrefix("/debug/leasehold", page))
	server := httptest.NewServer(mux)
	defer server.Close()

	mu := locks.Mutex("invoices")
	mu.Lock()
	defer mu.Unlock()

	answer, err := http.Get(server.URL + "/debug/leasehold/?format=json")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	var seen struct {
		Mine []struct{ Key, Kind, State string }
	}
	err = json.NewDecoder(answer.Body).Decode(&seen)
	fmt.Println(seen.Mine, err)
	// Output: [{invoices mutex holds}] <nil>
}
