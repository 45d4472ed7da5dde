package switches

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// fileCount is the number of files of a table: itself and two attached programs.
const fileCount = 3

// Send sends a table's files to the process at the other end of a socket, with one byte. The sender may end
// afterwards.
func Send(to *net.UnixConn, t *Table) error {
	fds := make([]int, len(t.files))
	for i, f := range t.files {
		fds[i] = int(f.Fd())
	}
	if _, _, err := to.WriteMsgUnix([]byte{fileCount}, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("hand over the table of threads: %w", err)
	}
	return nil
}

// Receive receives the files of a table, for Open. The caller trusts the sender to have loaded it.
func Receive(from *net.UnixConn) ([]*os.File, error) {
	var text [1]byte
	rights := make([]byte, unix.CmsgSpace(4*fileCount))
	_, n, _, _, err := from.ReadMsgUnix(text[:], rights)
	if err != nil {
		return nil, fmt.Errorf("receive the table of threads: %w", err)
	}
	var files []*os.File
	messages, _ := unix.ParseSocketControlMessage(rights[:n])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "bpf"))
		}
	}
	if len(files) != fileCount {
		closeAll(files)
		return nil, fmt.Errorf("receive the table of threads: %d files came, not %d: %w", len(files), fileCount, errIncomplete)
	}
	return files, nil
}

var errIncomplete = errors.New("the sender is another release, or this process has no descriptors left")
