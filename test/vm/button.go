package vm

// withButton is how a job begins that waits for its host: pressed returns when somebody has pressed the machine's power button.
// What is pressed before is lost, so whoever presses does so again until the machine says that it goes on.
const withButton = `
button=/dev/input/$(basename $(dirname $(dirname $(grep -l Power /sys/class/input/event*/device/name))))
pressed() { dd bs=24 count=1 <$button >/dev/null 2>&1; }
`
