package main

import (
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

func TestJudgeAddresses(t *testing.T) {
	for limit, want := range map[uint64]string{
		unix.RLIM_INFINITY: fine, callbuf.DeviceSliceBytes + workerAddresses: fine, callbuf.DeviceSliceBytes: fail, 8 << 30: fail,
	} {
		if c := judgeAddresses(limit)[0]; c.State != want || (want == fail) != (c.Fix != "") {
			t.Errorf("%d bytes: %+v", limit, c)
		}
	}
}
