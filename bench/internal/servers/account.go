package servers

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// An account is the user and group that a process runs as.
type account struct{ uid, gid uint32 }

// unprivileged returns the account of that name if this process runs as root, because PostgreSQL
// refuses to run as root. Otherwise it returns nil.
func unprivileged(name string) (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &account{uint32(uid), uint32(gid)}, nil
}

// prepare makes cmd run as the account, or as this process's user if a is nil. It also makes cmd end when this process
// ends.
func (a *account) prepare(cmd *exec.Cmd) {
	spawn.EndWithParent(cmd)
	if a == nil {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
}
