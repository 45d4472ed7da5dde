//go:build soak

package xen

import (
	"fmt"
	"strings"
	"testing"
)

// crowded is a job that could use a whole vCPU, and by a program a whole accelerator: while that program sleeps, a loop
// runs that never rests.
const crowded = withAgent + `
while :; do :; done &
renice -n 19 -p $!
while :; do
	served
	/bench/busy --size 1 %s --seconds 3600 --no-check --quiet
	echo "it failed: $?"
done
`

// queues are such a program's arguments: it always has kernels queued, enough to last until its vCPU's next turn.
const queues = "--steps 60 --queue 64"

// crowd is a Dom0 on a CPU of its own, with a daemon that is never kept waiting by the accelerator that it has;
// and on another CPU two domUs that compute, and one that only spins.
func crowd(t *testing.T, job string) *Host {
	t.Helper()
	h := Start(t, "dom0_max_vcpus=1")
	startDaemon(t, h, coordinated)
	h.Run("xl cpupool-cpu-remove Pool-0 1")
	h.Run(`xl cpupool-create 'name="one"' 'sched="credit"' 'cpus=["1"]'`)
	h.Run("pegasus attach one; pegasus attach two; pegasus attach spins")
	for _, name := range []string{"one", "two"} {
		h.Create(name, fmt.Sprintf(crowded, job), `pool="one"`, "memory=192")
	}
	computing(h, "one")
	computing(h, "two")
	h.Create("spins", "while :; do :; done", `pool="one"`)
	h.Run(`d=$(cat /tmp/pegasusd.pid); for t in /proc/$d/task/*; do renice -n -20 -p ${t##*/}; done
for p in $(pidof pegasusd); do [ $p = $d ] || renice -n 10 -g $p; done; true`)
	return h
}

// plan is what the daemon goes by: settings of the accelerator.
func plan(h *Host, settings string) {
	h.t.Helper()
	h.Write("/tmp/pegasus.toml", strings.Replace(coordinated, "cores = 1\n", "cores = 1\n"+settings+"\n", 1))
	h.Run("pegasus reload >/dev/null; sleep 1")
}

const coordinated = daemonConfig + "cores = 1\n[default_domain]\narena = \"8MiB\"\n"
