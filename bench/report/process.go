package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// cpuOf is what a process has used so far, user and system, to the hundredth of a
// second in which Linux tells it.
func cpuOf(pid int) (time.Duration, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	user, err := strconv.ParseInt(string(fields[11]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// memoryOf is how many bytes of a process are in memory.
func memoryOf(pid int) (int64, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(string(fields[21]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// statOf is the process's status, from the third field on.
func statOf(pid int) ([][]byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}
