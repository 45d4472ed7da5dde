package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// shutDown orders a daemon to end, blocks until it has, and closes the connection. A daemon's refusal is a
// *control.Error.
func shutDown(daemon *client.Client, p control.ShutdownParams) error {
	defer daemon.Close()
	process, err := unix.PidfdOpen(daemon.Server().PID, 0)
	if err != nil {
		return nil // it has just ended
	}
	defer unix.Close(process)
	err = daemon.Shutdown(context.Background(), p)
	var refused *control.Error
	if errors.As(err, &refused) {
		return err
	}
	return awaitEnd(process) // also when it ended without an answer
}

// endTime is a daemon's time limit from the order to its end.
const endTime = 20 * time.Second

// awaitEnd waits until the process of a pidfd has ended.
func awaitEnd(pidfd int) error {
	for end := time.Now().Add(endTime); ; {
		p := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, max(int(time.Until(end).Milliseconds()), 0))
		switch {
		case n == 1:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case time.Now().After(end):
			return fmt.Errorf("the daemon hasn't ended in %v", endTime)
		}
	}
}
