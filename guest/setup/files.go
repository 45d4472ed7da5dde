package setup

// written marks the files that pegasus-guest writes.
const written = "pegasus-guest install wrote this"

const loaderText = "# " + written + ".\n" + LibraryDir + "\n"

// Socket is the path of the agent's socket; libcuda.so.1 has it built in, too.
const Socket = "/run/pegasus/guest.sock"

// RegionDir is where the agent mounts the memory shared with the host. It isn't beside the socket, since containers see
// the socket's directory.
const RegionDir = "/run/pegasus-guest/region"

// systemd owns the socket, so that a program that starts before the agent, or while it restarts, waits instead of
// failing. The agent is started at boot all the same, since preparing the region takes a moment.
const socketText = `# ` + written + `.
[Unit]
Description=Where CUDA programs find the host's accelerators

[Socket]
ListenSequentialPacket=` + Socket + `
SocketMode=0666
DirectoryMode=0755

[Install]
WantedBy=sockets.target
`

// The service must not have a private mount namespace: the next agent must find its mounts. Under Xen the next agent
// also takes files from systemd's descriptor store, and the process that holds descriptors (guest/xen) must outlive the
// service.
const serviceText = `# ` + written + `.
[Unit]
Description=Pegasus' agent: accelerators of the host for this machine
Requires=pegasus-guest.socket
After=pegasus-guest.socket

[Service]
Type=notify
ExecStart=` + Program + ` agent
Restart=on-failure
RestartSec=1
FileDescriptorStoreMax=8
KillMode=process
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
`

const (
	socketUnit  = "pegasus-guest.socket"
	serviceUnit = "pegasus-guest.service"
)

// units returns systemd's unit files, and the links that start them at boot.
func units() []item {
	return []item{
		{path: unitDir + "/" + socketUnit, mode: 0o644, data: []byte(socketText)},
		{path: unitDir + "/" + serviceUnit, mode: 0o644, data: []byte(serviceText)},
		{path: unitDir + "/sockets.target.wants/" + socketUnit, target: unitDir + "/" + socketUnit},
		{path: unitDir + "/multi-user.target.wants/" + serviceUnit, target: unitDir + "/" + serviceUnit},
	}
}

// CDI specification for containers in the machine: the files that a runtime mounts into a container that requests the
// device pegasus.dev/gpu=all. The libraries go to the loader's default directories, by the conventions of Debian and of
// Fedora. The specification mounts the socket's directory, not the socket: a restarted agent may create another socket.
// The directory contains nothing else; the agent's private files are in a directory of their own.
func cdiText(monitor bool) string {
	text := `# ` + written + `.
cdiVersion: "0.3.0"
kind: pegasus.dev/gpu
devices:
  - name: all
    containerEdits:
      mounts:
` + mounts(Library, LibraryName)
	if monitor {
		text += mounts(Monitor, MonitorName)
	}
	return text + mount("/run/pegasus", "/run/pegasus", "bind, ro, nosuid, nodev, noexec")
}

func mounts(library, name string) string {
	const options = "bind, ro, nosuid, nodev"
	return mount(library, "/usr/lib/"+name, options) + mount(library, "/usr/lib64/"+name, options)
}

func mount(from, to, options string) string {
	return "        - hostPath: " + from + "\n          containerPath: " + to + "\n          options: [" + options + "]\n"
}
