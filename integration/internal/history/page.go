package history

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// Page writes a web page that shows the calls on each key, the faults and the violations. For each key it also shows an
// order in which a lock can have executed the calls. grace is the grace of every session. The calls of one hold are in
// one row.
func (h *History) Page(w io.Writer, grace time.Duration, found []rules.Violation) error {
	ops := h.lockOps(h.Holds(), grace)
	for key := range ops {
		var rows []int64 // when the last hold in each row ends
		for i := 0; i < len(ops[key]); i += 2 {
			acquire, end := &ops[key][i], &ops[key][i+1]
			row := slices.IndexFunc(rows, func(over int64) bool { return over <= acquire.Call })
			if row < 0 {
				row = len(rows)
				rows = append(rows, 0)
			}
			rows[row] = end.Return
			acquire.ClientId, end.ClientId = row, row
		}
	}
	model := lockModel
	model.Partition = func([]porcupine.Operation) (byKey [][]porcupine.Operation) {
		for _, key := range slices.Sorted(maps.Keys(ops)) {
			byKey = append(byKey, ops[key])
		}
		return byKey
	}
	model.DescribeOperation = func(in, _ any) string { return in.(input).String() }
	model.DescribeState = func(state any) string { return fmt.Sprint(state.(lock).holds) }
	_, info := porcupine.CheckOperationsVerbose(model, nil, patience)
	var notes []porcupine.Annotation
	for _, f := range h.Faults() {
		notes = append(notes, porcupine.Annotation{Tag: cmp.Or(f.Target, "server"), Start: int64(f.From), End: int64(f.To), Description: f.What})
	}
	for _, v := range found {
		notes = append(notes, porcupine.Annotation{Tag: "violations", Start: int64(v.At), Description: v.String(), BackgroundColor: "#f99"})
	}
	info.AddAnnotations(notes)
	return porcupine.Visualize(model, info, w)
}

func (i input) String() string {
	switch o := i.hold; i.kind {
	case opAcquire:
		return fmt.Sprintf("%s: %s of %s, token %d, weight %d", o.Process, o.What, o.Key, o.Token, o.Weight)
	case opRelease:
		return fmt.Sprintf("%s: released, token %d", o.Process, o.Token)
	default:
		return fmt.Sprintf("%s: lost, token %d", o.Process, o.Token)
	}
}
