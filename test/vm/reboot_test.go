package vm

import (
	"strings"
	"testing"
)

// whichBoot is the beginning of a job that a machine runs at each boot: it reads the number of earlier
// boots from a file on the region. The region's memory survives a reboot.
const whichBoot = `
set -e
boot=0
for p in /dev/pmem*; do mount -t ext4 -o ro $p /mnt 2>/dev/null && boot=$(cat /mnt/boots) && umount /mnt; done
echo "boot $boot"
next() { echo $((boot+1)) >/run/pegasus-guest/region/boots; sync; }
` + waitForAgent

// A machine that loses its power while processes come leaves nothing behind.
func TestPowerWhileOpening(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.boot("one", `
for t in $(seq 1000); do # ever longer, for machines in which programs take long to come
	for i in 1 2 3 4 5; do /bench/vectoradd --quiet & all="$all $!"; done
	sleep $t
	kill -9 $all
	wait $all
	all=
done
`)
	eventually(t, bootTime, "processes come", func() bool { return h.domain("one").GPU > 0 && h.domain("one").Processes > 2 })
	m.Kill()
	m.Wait()
	m.remove()
	eventually(t, soon, "nothing is left of a machine without power", func() bool {
		d := h.domain("one")
		return d.Processes == 0 && d.Memory == 0 && len(h.hubs()) == 0
	})
}

// A machine that reboots, or that has a kernel panic, keeps its memory and its hub, with their
// contents from before: the agent of the new boot begins a new session, nothing is left of old
// programs, and new ones work.
func TestReboot(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Reboot: true, Job: whichBoot + `
/bench/vectoradd --json
if [ $boot -lt 3 ]; then
	/bench/busy --seconds 3600 --queue 2 --no-check --quiet &
	/bench/busy --seconds 3600 --queue 2 --no-check --quiet &
	while [ $(ls /run/pegasus-guest/region | grep -c -e -2 -e -3) != 2 ]; do sleep 0.1; done
	next
	/bench/vectoradd --quiet & # it may be just coming
	sleep 0.$boot
fi
case $boot in
0) reboot -f ;;
1) kill -9 $agent; reboot -f ;;
2) echo c >/proc/sysrq-trigger ;;
esac
[ $boot = 3 ] || sleep 60
echo "processes $(ls /run/pegasus-guest/region | grep -c -e '-[0-9]')"
`})
	eventually(t, 2*bootTime, "the last boot", func() bool { return strings.Contains(m.Output(), "\nprocesses ") })
	eventually(t, soon, "nothing is left of programs from before", func() bool {
		d := h.domain("one")
		return d.Processes == 0 && d.Memory == 0
	})
	if out := m.finish(); strings.Count(out, `"right"`) != 4 {
		t.Errorf("of 4 boots, some didn't compute what is right:\n%s", out)
	}
}
