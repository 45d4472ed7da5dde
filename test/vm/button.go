package vm

// withButton is the beginning of a job that waits for the test: pressed blocks until the test presses the machine's power button.
// An earlier press is lost, so the test repeats it until the job's output shows that the job goes on.
const withButton = `
button=/dev/input/$(basename $(dirname $(dirname $(grep -l Power /sys/class/input/event*/device/name))))
pressed() { dd bs=24 count=1 <$button >/dev/null 2>&1; }
`
