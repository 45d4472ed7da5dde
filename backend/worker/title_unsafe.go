package worker

import (
	"os"
	"strconv"
	"unsafe"
)

// setName sets the names that ps and top show for this process.
func setName(j *Job) {
	os.WriteFile("/proc/self/task/"+strconv.Itoa(os.Getpid())+"/comm", []byte("pegasus-worker"), 0)
	setTitle("pegasusd worker " + j.Domain)
}

// setTitle overwrites the command line with text, within its length. That is safe because the strings of os.Args are
// contiguous, each followed by a zero byte, in writable memory that the kernel allocated and reads for
// /proc/PID/cmdline; the worker reads them no more.
func setTitle(text string) {
	if len(os.Args) == 0 {
		return
	}
	first := unsafe.StringData(os.Args[0])
	room := 0
	for _, a := range os.Args {
		if unsafe.Pointer(unsafe.StringData(a)) != unsafe.Add(unsafe.Pointer(first), room) {
			break
		}
		room += len(a) + 1
	}
	area := unsafe.Slice(first, room)
	clear(area)
	copy(area[:max(room-1, 0)], text)
}
