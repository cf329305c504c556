package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// cpuOf returns the user and system CPU time that a process has used so far. Linux reports it in
// hundredths of a second.
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

// memoryOf returns the resident memory of a process in bytes.
func memoryOf(pid int) (int64, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(string(fields[21]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// statOf returns the fields of /proc/pid/stat, from the third on.
func statOf(pid int) ([][]byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields after the command's name, want at least 22", pid, len(fields))
	}
	return fields, nil
}
