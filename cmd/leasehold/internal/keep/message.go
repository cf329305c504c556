//go:build linux || darwin || freebsd

package keep

import (
	"os"
	"strconv"
	"time"
)

// An Order is a message from leasehold to the keeper. The first order that has Stop and Kill makes the keeper start the
// command, and Env is added to the command's environment.
type Order struct {
	// The command's group gets SIGTERM at the time Stop and SIGKILL at the time Kill, both by
	// [Clock]. An order with a Signal does not change them.
	Stop, Kill time.Duration

	// Signal is a signal to forward to the command; 0: none.
	Signal int

	Env []string
}

// A Report is a message from the keeper to leasehold. The first report says that the command was started. The last
// report says that the command has ended, or that it could not be started. Any report between them says that job
// control has stopped the command.
type Report struct {
	Started int    // the ID of the command's process and of its group
	Job     int    // the job control signal that stopped the command
	Failed  string // why the command did not start
	Status  int    // the exit status
	Stopped bool   // the keeper stopped the command at the deadline, or got the deadline too late to start it
}

// Line returns the order as a line of text.
func (o Order) Line() []byte {
	return line([]int64{int64(o.Stop), int64(o.Kill), int64(o.Signal)}, o.Env)
}

func (r Report) line() []byte {
	var stopped int64
	if r.Stopped {
		stopped = 1
	}
	return line([]int64{int64(r.Started), int64(r.Job), int64(r.Status), stopped}, []string{r.Failed})
}

// Orders calls f with each order from the file, until the file ends or has something else.
func Orders(file *os.File, f func(Order)) {
	readLines(file, 3, func(n []int64, env []string) bool {
		f(Order{Stop: time.Duration(n[0]), Kill: time.Duration(n[1]), Signal: int(n[2]), Env: env})
		return true
	})
}

// Reports calls f with each report from the file, until the file ends or has something else.
func Reports(file *os.File, f func(Report)) {
	readLines(file, 4, func(n []int64, failed []string) bool {
		if len(failed) != 1 {
			return false
		}
		f(Report{Started: int(n[0]), Job: int(n[1]), Status: int(n[2]), Stopped: n[3] != 0, Failed: failed[0]})
		return true
	})
}

// line returns a message: numbers, then quoted texts.
func line(numbers []int64, texts []string) []byte {
	var b []byte
	for _, n := range numbers {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	for _, t := range texts {
		b = append(strconv.AppendQuote(b, t), ' ')
	}
	b[len(b)-1] = '\n'
	return b
}

// readLines calls f with the numbers and texts of each line, until the file ends, f returns false, or a line does not
// begin with that many numbers.
func readLines(file *os.File, numbers int, f func([]int64, []string) bool) {
	var have []byte
	for part := make([]byte, 4096); ; {
		n, err := file.Read(part)
		if err != nil {
			return
		}
		have = append(have, part[:n]...)
		for end := newline(have); end >= 0; end = newline(have) {
			n, texts, ok := parse(string(have[:end]), numbers)
			if !ok || !f(n, texts) {
				return
			}
			have = have[end+1:]
		}
	}
}

// newline is bytes.IndexByte(b, '\n'). Package bytes is not imported: see the package comment.
func newline(b []byte) int {
	for i, c := range b {
		if c == '\n' {
			return i
		}
	}
	return -1
}

// parse is the inverse of line.
func parse(s string, numbers int) (ns []int64, texts []string, ok bool) {
	for len(s) > 0 {
		if len(ns) == numbers {
			quoted, err := strconv.QuotedPrefix(s)
			if err != nil {
				return nil, nil, false
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, nil, false
			}
			texts, s = append(texts, text), s[len(quoted):]
		} else {
			end := 0
			for end < len(s) && s[end] != ' ' {
				end++
			}
			n, err := strconv.ParseInt(s[:end], 10, 64)
			if err != nil {
				return nil, nil, false
			}
			ns, s = append(ns, n), s[end:]
		}
		if len(s) > 0 && s[0] == ' ' {
			s = s[1:]
		}
	}
	return ns, texts, len(ns) == numbers
}
