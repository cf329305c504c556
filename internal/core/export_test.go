package core

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// ClaimState returns the state of the claim with that number.
func (c *Core) ClaimState(number uint64) string {
	if cl := c.claims[number]; cl != nil {
		return cl.state.String()
	}
	if slices.ContainsFunc(c.past, func(p pastClaim) bool { return p.number == number }) {
		return past.String()
	}
	return gone.String()
}

// A Row is a row of the claim's table, for one state and one trigger.
type Row struct{ From, On, When, Next, Do string }

// Rows returns the rows of the claim's table, in the order in which the table has them. If whole is true, a row for
// several states or triggers stays one row.
func Rows(whole bool) (rows []Row) {
	for _, r := range claimTable.all {
		var from, on []string
		for i, name := range stateNames {
			if r.from.in(1 << i) {
				from = append(from, name)
			}
		}
		for j, name := range triggerNames {
			if r.on&(1<<j) != 0 {
				on = append(on, name)
			}
		}
		next := "as before"
		if r.next != stay {
			next = r.next.String()
		}
		if whole {
			if r.from == ungiven {
				from = []string{"ungiven"}
			}
			rows = append(rows, Row{strings.Join(from, ", "), strings.Join(on, ", "), nameOf(r.when), next, nameOf(r.do)})
			continue
		}
		for _, f := range from {
			for _, t := range on {
				if r.next == stay {
					next = f
				}
				rows = append(rows, Row{f, t, nameOf(r.when), next, nameOf(r.do)})
			}
		}
	}
	return rows
}

// nameOf returns the name of a method of Core, or "" for nil.
func nameOf(f any) string {
	v := reflect.ValueOf(f)
	if v.IsNil() {
		return ""
	}
	name := runtime.FuncForPC(v.Pointer()).Name()
	return name[strings.LastIndex(name, ".")+1:]
}

// The defects that Break can make.
const (
	NoRow      = "the row is missing"
	NoGuard    = "its guard is missing"
	OtherState = "its next state is another"
	NoEffect   = "its effect is missing"
)

// Defects lists the defects above.
var Defects = []string{NoRow, NoGuard, OtherState, NoEffect}

// Break gives c a table in which Rows(false)[n] has a defect. It reports false if the row can't have that defect.
func (c *Core) Break(n int, defect string) bool {
	rows := c.table.expanded()
	r := &rows[n]
	switch defect {
	case NoRow:
		r.on = 0
	case NoGuard:
		if r.when == nil {
			return false
		}
		r.when = nil
	case OtherState:
		if r.next == lost {
			r.next = leaving
		} else {
			r.next = lost
		}
	case NoEffect:
		if r.do == nil {
			return false
		}
		r.do = nil
	default:
		panic(fmt.Sprintf("no defect %q", defect))
	}
	do, times := r.do, 0
	r.do = func(c *Core, cl *claim, x *args) {
		if times++; times > 100 {
			panic("the transition is made again and again")
		}
		if do != nil {
			do(c, cl, x)
		}
	}
	c.table = newTable(rows)
	return true
}

// NeverDone is what Step panics with if something stays due, whatever is done about it.
const NeverDone = neverDone

// Repeat gives c a table in which a wake of a claim that waits is followed by another, a million times.
func (c *Core) Repeat() {
	times := 0
	again := func(c *Core, cl *claim, _ *args) {
		if times++; times < 1_000_000 {
			c.then(cl, wake, args{})
		}
	}
	c.table = newTable(append([]row{{waiting, wake, nil, waiting, again}}, c.table.all...))
}

// Watch makes c call met whenever Rows(false)[n] may be the row that decides, and used when it decides.
func (c *Core) Watch(met, used func(n int)) {
	rows := c.table.expanded()
	for n := range rows {
		do, when := rows[n].do, rows[n].when
		rows[n].when = func(c *Core, cl *claim, x *args) bool {
			met(n)
			return when == nil || when(c, cl, x)
		}
		rows[n].do = func(c *Core, cl *claim, x *args) {
			used(n)
			if do != nil {
				do(c, cl, x)
			}
		}
	}
	c.table = newTable(rows)
}

// expanded returns the rows, each for one state and one trigger.
func (t *table) expanded() (rows []row) {
	for _, r := range t.all {
		for i := range stateNames {
			for j := range triggerNames {
				one := r
				if one.from, one.on = 1<<i, 1<<j; one.from.in(r.from) && one.on&r.on != 0 {
					if one.next == stay {
						one.next = one.from
					}
					rows = append(rows, one)
				}
			}
		}
	}
	return rows
}
