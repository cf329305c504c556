package statusjson_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/statusjson"
)

func TestStatusInJSON(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6_700_000, time.FixedZone("", 3600))
	st := admin.Status{
		Key: "k", Now: now, Kind: driver.KindMutex, Limit: 1, Token: 7, Value: []byte{0xff}, Waiting: 1,
		Holders: []admin.Participant{{
			Claim: "a.1", Session: "a", Weight: 1, Token: 7, Since: now.Add(-1500 * time.Microsecond),
			Seen: now, TTL: time.Second, Until: now.Add(time.Second), Renewed: true,
		}},
		Queue: []admin.Participant{{Claim: "b.1", Session: "b", Name: "n", Weight: 1}},
	}
	got, err := json.Marshal(statusjson.NewStatus(st, func(p admin.Participant, queued bool) statusjson.Participant {
		return statusjson.NewParticipant(p, queued, st.Now)
	}))
	const want = `{"key":"k","now":"2026-01-02T02:04:05.006Z","kind":"mutex","held":true,"sealed":false,"limit":1,"token":7,"term":0,` +
		`"value_base64":"/w==","holders":[{"claim":"a.1","session":"a","name":"","host":"","pid":0,"app":"","weight":1,` +
		`"seen":"2026-01-02T02:04:05.006Z","ttl_ms":1000,"token":7,"since":"2026-01-02T02:04:05.005Z","for_ms":1.5,` +
		`"until":"2026-01-02T02:04:06.006Z","left_ms":1000,"renewed":true,"lapsed":false,"yields":false}],` +
		`"waiting":1,"queue":[{"claim":"b.1","session":"b","name":"n","host":"","pid":0,"app":"","weight":1}]}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
}
