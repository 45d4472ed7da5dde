package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// crowdSize is many more processes than a hub serves.
const crowdSize = 2000

// crowd acts as crowdSize programs that connect at once and then stay idle.
func crowd(seconds int) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		return err
	}
	came := 0
	for range crowdSize {
		c, err := hello(0)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return err
		}
		defer c.Close()
		came++
	}
	fmt.Printf("%d came\n", came)
	time.Sleep(time.Duration(seconds) * time.Second)
	return nil
}
