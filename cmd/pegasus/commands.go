package main

import (
	"pegasus/configs"
	"pegasus/internal/fleet"
)

// commands returns the table; a function, since completion refers back to it.
func commands() []command {
	return []command{
		{name: "run", args: "[--domain NAME] [--credits N] [--policy NAME] [--config FILE] [--private] [--] PROGRAM [ARGS…]", greedy: true,
			short: "run a program as a guest of a domain", run: runProgram, long: `
Runs PROGRAM unmodified, with Pegasus' libcuda.so.1 in place of the driver's, as
a process of the domain. The program takes over this process: its exit status,
signals and terminal are its own.

If the host has no daemon that lets us, a private daemon is started, shared by
all later runs of this user; it ends shortly after the last program. With --private
the program has a daemon of its own, whatever other daemons run: it has its own accelerators,
domains and configuration, serves what PROGRAM starts, too, and ends with the last of these.

  pegasus run -- ffmpeg -init_hw_device cuda …       in domain "default"
  pegasus run --domain render --credits 512 -- ./bench
  pegasus run --config laptop.toml -- ./bench        the private daemon's configuration
  pegasus run --private -- ./bench                   alone, beside other runs and the host's daemon
  pegasus run --private -- sh                        a shell whose pegasus commands talk to its own daemon`},
		{name: "domains", args: "[NAME | --watch] [--wide] [--json]",
			short: "list the domains with their shares and their use", run: listDomains, complete: oneDomain, long: `
Lists the domains; with NAME shows one of them, with each of its settings and their
origin. "entitled" is what a domain's credits come to among those on
its accelerator ("-" where the policy owes nothing); "share" is its part of the accelerator time measured lately;
the waits are how long calls stood at a closed gate.

  pegasus domains
  pegasus domains render             with its settings
  pegasus domains --watch            again every second
  pegasus domains --json | jq '.[] | {name, gpu_ns}'

In JSON times are nanoseconds, memory is bytes, and entitled and share are
fractions of 1.`},
		{name: "accelerators", args: "[--wide] [--json]",
			short: "the accelerators, their policies and load", run: listAccelerators, complete: words(), long: `
Lists the accelerators. "weight" ranks them for the next domain to be placed,
in thousandths: the greater the sooner.

  pegasus accelerators`},
		{name: "top", args: "[--interval DURATION] [--once] [--json]",
			short: "watch accelerators and domains on a screen, and change credits and policies", run: showTop, complete: words(), long: `
Shows accelerators and domains on the terminal, again every interval: use, shares and errors,
waits, calls, memory, vCPUs and their history. The last line of the screen has the keys; ? explains
them. A change is made only after a question that names the old and the new value. If the daemon
ends, the screen stays and waits for the next one.

With --once or --json it polls the daemon twice, an interval apart, and prints the figures; rates
are differences between the two.

  pegasus top
  pegasus top --interval 5s
  pegasus top --once
  pegasus top --json | jq '.domains[] | {name, share, error, calls_per_second}'

In JSON: at, interval_ns, accelerators and domains. These have the fields of pegasus accelerators
--json and pegasus domains --json, and a domain also error (share less entitled, from -1 to 1),
calls_per_second and vcpu_run (CPUs that its vCPUs used). A field is null if it is unknown.`},
		{name: "policy", args: "[NAME] [--mode production|paper] [--accelerator A] [--explain] [--json]",
			short: "show or switch the policies of the accelerators", run: policy, complete: aPolicy, long: `
Without NAME and --mode, shows each accelerator's policy and those there are.
With them, switches at once; running programs see nothing but new shares.

  pegasus policy
  pegasus policy rr                       equal shares, on all accelerators
  pegasus policy accc --mode paper        credits, with windows as published
  pegasus policy none --accelerator soft0
  pegasus policy --explain                why each last decided as it did, and what that cost

The switch lasts, over restarts of the daemon, until the configuration gets another policy.

The policies, and which domain may submit under each:

` + policyHelp()},
		{name: "create", args: "DOMAIN [KEY=VALUE…] [--holder ID] [--expires DURATION] [--json]",
			short: "make a domain that stays until it is removed", run: create, complete: settingKeys, long: `
Makes a domain with settings spelled as those of a [[domain]] in the configuration, and prints the
path of its socket. The domain, its settings and its directory survive restarts of the daemon and
of all programs in it.

The domain is leased to a holder: without --holder to the caller's user. It goes when all its
leases have been released or have expired, and no process is in it. Another create with the same settings
adds a lease for another holder, or renews that of the same; with other settings it is refused.

  pegasus create web credits=512 memory=1GiB
  pegasus create k8s-7f3a memory=256MiB socket_mode=0666 --holder pod-1 --expires 10m`},
		{name: "renew", args: "DOMAIN [--holder ID] [--expires DURATION] [--json]",
			short: "give a lease of a domain a new term", run: renew, complete: oneDomain, long: `
Lets a lease expire after DURATION from now on, or never.

  pegasus renew k8s-7f3a --holder pod-1 --expires 10m`},
		{name: "release", args: "DOMAIN [--holder ID]",
			short: "end a lease of a domain", run: release, complete: oneDomain, long: `
Ends the lease of a holder. The domain goes with the last lease, once no process is in it.

  pegasus release k8s-7f3a --holder pod-1`},
		{name: "remove", args: "DOMAIN [--wait | --kill]",
			short: "remove a domain that was created, or made by a program", run: remove, complete: oneDomain, long: `
Removes a domain, unless processes are in it or others than the caller have leased it. With --wait or
--kill it ends all leases, and no process enters the domain any more; pegasus remove then waits until the last
one has gone, which --kill makes happen: their CUDA calls fail, and they live on.

A domain that the configuration declares is removed there, followed by pegasus reload.

  pegasus remove web
  pegasus remove web --kill`},
		{name: "set", args: "DOMAIN KEY=VALUE… [--json]",
			short: "change a domain's settings while it runs", run: set, complete: settings(oneDomain), long: `
Sets credits, slo, slo_wait_p99, slo_rate, slo_window, bandwidth, group, priority,
memory, host_memory, arena, processes, cpu,
accelerator, socket_owner, socket_group or socket_mode of a domain, spelled as in the configuration. What
policies and quotas look at holds at once; arena, accelerator and the socket's three for processes and placements
to come. It holds as long as the domain, over restarts of the daemon, and of a declared
domain until the configuration gets another value of that key.

Of a domU of Xen, weight and cap, too: its part of the CPUs, as Xen's scheduler has it (256 is
what nothing set comes to; a cap is in % of one CPU, 0 for none). slice is for how long a vCPU may run
under the credit scheduler before others of its CPU pool have their turn; it holds for all of that pool.

  pegasus set render credits=1024
  pegasus set render memory=512MiB processes=8
  pegasus set render socket_group=video socket_mode=0660
  pegasus set web weight=512 cap=50
  pegasus set web slice=5ms`},
		{name: "fits", args: "[KEY=VALUE…] [--accelerator A] [--no-predict] [--kernel DURATION] [--demand PART] [--json]",
			short: "would another domain fit, and at what cost to the others?", run: fitsCommand, complete: settingKeys, long: `
Reports for each accelerator whether a domain with these settings, spelled as for create, would fit, which
share each domain there would have before and after, and which objectives would break. Nothing changes.

Memory, guarantees, reserves and entitled shares are computed. Predicted shares and waits are those of the
simulator (pegasus sim), with the demand that was measured of the domains there; of the new domain, --kernel is
the length of its requests and --demand the part of the time that it computes while it is alone. The exit status is 1 if
it fits on no accelerator.

  pegasus fits credits=512 memory=1GiB
  pegasus fits slo=300 slo_wait_p99=50ms --accelerator soft0 --json
  pegasus fits credits=256 --kernel 5ms --demand 0.2`},
		{name: "fleet", args: fleet.Arguments,
			short: "the accelerators of a Kubernetes cluster, and where shares are not kept", run: showFleet, complete: words(), long: `
Shows the accelerators of a cluster with sold and free credits and memory, the domains of claims with
their floors, entitled and measured shares, and the hosts where shares are not kept, with the reasons. It
reads the API server and, through it, the metrics of the nodes' drivers; it changes nothing but with --apply.

  pegasus fleet
  pegasus fleet --json | jq '.hosts[] | select(.shares_kept != "yes")'
  pegasus fleet --advise              which claims to move, so that the load is even
  pegasus fleet --advise --apply      and evict those pods that permit it
  pegasus fleet --listen 127.0.0.1:8080    the same as a page

The advice records demand for a window, chooses moves from accelerators with more demand than time, and
simulates the domains' shares without and with them. --apply evicts pods with the annotation
pegasus.dev/movable: "true" that a controller makes anew, as far as their disruption budgets permit.

The program is pegasus-fleet, beside pegasus or in PATH; make cluster builds it. With the name kubectl-pegasus it is
a plugin: kubectl pegasus. docs/kubernetes.md has the rights that it needs.`},
		{name: "reload", args: "[--json]",
			short: "read the configuration again", run: reload, complete: words(), long: `
Reads the daemon's configuration file and takes up what changed. A file with
errors changes nothing: every error is shown with its line, and the old settings
stay. SIGHUP does the same.

  pegasus reload`},
		{name: "config", args: "[--changes | --check [FILE]] [--json]",
			short: "the configuration in force, and what a reload would change", run: config, long: `
Prints every setting of the daemon, of the accelerators with the policies' parameters, and of the declared domains,
each with its origin: the line of a file, pegasus set, policy or log with the caller, or the default. The
output is a configuration file. Its last lines, and --changes, are what pegasus reload would change now, or the mistakes
for which it would be refused. pegasus domains NAME shows the settings of any domain.

With --check it checks FILE, or the host's configuration, and the drop-ins beside it. It needs no daemon; the exit
status is 1 if there are mistakes.

  pegasus config
  pegasus config --changes
  pegasus config --check laptop.toml
  pegasus config --json | jq '.tables[].settings[] | select(.origin.source == "set")'`},
		{name: "log", args: "[LEVEL] [--json]",
			short: "show or change the level of the daemon's log", run: logLevel, complete: words("debug", "info", "warn", "error"), long: `
Shows the level of the log, or changes it: debug, info, warn or error. Running workers and hubs adopt it, too. It
holds, over restarts of the daemon, until the configuration gets another log_level.

  pegasus log
  pegasus log debug`},
		{name: "events", args: "[--json]",
			short: "follow what happens: guests, placements, deaths", run: events, complete: words(), long: `
Prints the latest events, then each as it happens, until interrupted.

  pegasus events`},
		{name: "trace", args: "[--accelerator A] [--cpus] [--out FILE] | --perfetto FILE [--seconds N]",
			short: "record the events and decisions of a scheduler, or a time line", run: trace, complete: words(), long: `
Writes every event that an accelerator's scheduler receives, and every decision, one
JSON object a line, until interrupted or for N seconds. The policy begins anew with
the trace, so that it can be played again from nothing: balances start at zero.

With --perfetto it draws one time line of everything: which domain had each engine
when, for kernels and for copies; whose gate was open; which vCPU ran on which CPU.

With --cpus the records have lines between them of when vCPUs ran, as the hypervisor's trace
or the kernel's has it: from these pegasus sim coordination computes whether the accelerator
went to domains whose vCPUs ran.

  pegasus trace --seconds 10 --out busy.trace
  pegasus trace --cpus --seconds 10 --out both.trace && pegasus sim coordination both.trace
  pegasus trace --perfetto busy.json --seconds 3   to be opened at ui.perfetto.dev
  pegasus trace --accelerator soft0 | jq -c 'select(.actions) | .actions[]'`},
		{name: "why", args: "[DOMAIN] [--json]",
			short: "why a domain does or doesn't run", run: why, complete: oneDomain, long: `
Explains where a domain stands: its placement, its gate, its turn in the policy,
its quotas, and what to do about each.

  pegasus why render`},
		{name: "smi", args: "[-L | --list-gpus] [--query-gpu FIELDS [--format csv[,noheader][,nounits]]] [--domain NAME]",
			short: "what a guest has of its accelerator, as nvidia-smi shows it", run: showDevice, complete: words(), long: `
Shows name, memory, utilisation and processes of the domain in which it runs, in
nvidia-smi's columns; outside of guests, of the domain that --domain names.

  pegasus run --domain render -- pegasus smi
  pegasus smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader`},
		{name: "doctor", args: "[--json]",
			short: "check this host, or this guest, for missing requirements", run: doctor, complete: words(), long: `
Checks the requirements of Pegasus here, prints how to meet the missing ones, and lists the
libraries of NVIDIA that programs won't find (docs/programs.md). In a guest it tries the domain's socket, too. The exit
status is 1 if something fails that running programs needs.

  pegasus doctor`},
		{name: "init", args: "[--output FILE|-] [--force] [--json]",
			short: "write a configuration for this host", run: initialize, complete: words(), long: `
Examines this host: GPUs, cores, memory, libvirt and its machines, Xen; and writes a commented
configuration for them, by default to ` + configs.Path + `. A file that has settings is replaced
only with --force. With the default file it restarts a daemon that systemd runs; running guests
continue. With --json it prints what it found, and writes nothing.

  pegasus init --output -     prints the configuration
  pegasus init --output host.toml`},
		{name: "attach", args: "MACHINE [--memory SIZE] [--credits N] [--device KIND [--live]] [--dry-run] [--regions DIR] [--connect URI] [--hooks DIR] [--machines DIR]",
			short: "give a virtual machine an accelerator", run: attach, complete: toAttach, long: `
On a host with libvirt and QEMU it changes a machine's definition so that from its next start on it shares memory with
the host, as a virtual NVDIMM, and installs the hook by which libvirt makes that
memory. The machine's name is its domain's. docs/kvm.md has the requirements of the machine.
Credits given here go with the machine; a [[domain]] of its name in the daemon's
configuration goes before them. Settings that are not given stay as they were.

  pegasus attach web
  pegasus attach web --memory 1GiB    room for more processes at once
  pegasus attach web --credits 512
  pegasus attach web --dry-run        what would change in its definition
  pegasus attach web --device ivshmem --live    as a PCI device, which a machine that runs can be given, and one whose kernel has no DAX. Its programs have to trust each other

In Dom0 of a Xen host it writes down, in a file of --machines, that domUs of that name
are served, at once if there is one. Only --memory (the limit of the memory that it shares,
64MiB by default), --credits and --dry-run are for that; see docs/xen.md.

  pegasus attach web --memory 96MiB`},
		{name: "detach", args: "MACHINE [--live] [--dry-run] [--regions DIR] [--connect URI] [--machines DIR]",
			short: "undo attach", run: detach, complete: toDetach, long: `
Takes the shared memory out of a machine's definition again. Other changes of the definition stay.

  pegasus detach web
  pegasus detach web --live    and unplugs it, if it is a PCI device

In Dom0 of a Xen host domUs of that name are served no more: programs that use an
accelerator there get errors at once.`},
		{name: "hook", args: "[--regions DIR] MACHINE prepare|release begin|end", greedy: true,
			short: "for libvirt: makes and removes the memory of machines", run: hook, long: `
Is called by libvirt before a machine starts and after it has ended, with the
machine's definition on standard input. No other program needs it.`},
		{name: "stop", args: "[--if-idle]",
			short: "end the daemon", run: stop, complete: words(), long: `
Ends the daemon. Guests of a private daemon get CUDA errors; those of the host's
daemon go on, and the next daemon takes them over.

  pegasus stop --if-idle              only when no program uses it`},
		{name: "demo", args: "[--seconds N] [--out DIR] [--json]",
			short: "see three domains share an accelerator by credits", run: demo, complete: words(), long: `
Runs BlackScholes in three domains with credits 256, 512 and 1024 under the
policies none, rr and accc in turn, then ffmpeg's CUDA scaler beside them in a
fourth, and prints what each was owed and got.

  pegasus demo
  pegasus demo --seconds 20`},
		{name: "sim", args: "list | [run] SCENARIO… | FILE.toml | all [--seed N] [--seeds N] [--plan NAME] [--trace FILE] [--record FILE] [--report DIR] | replay FILE [--policy NAME] [--cost] | coordination FILE [--json]",
			short: "simulate policies: the papers' experiments, or your own", run: simulate, complete: scenarios, older: simOlderFlags, long: `
Runs scenarios in a deterministic simulator round the daemon's own policies, with
20 seeds, and reports which of their expectations hold: for the mean over the
seeds, and for at least 95 % of them. The same scenario and seed give the same
run, everywhere. Nothing real is used: no daemon, no accelerator.

  pegasus sim list                       the scenarios, by paper
  pegasus sim run P4                     Pegasus' Figure 4: seven policies, four domains
  pegasus sim run P4 --seed 100 --json   other seeds, 100 to 119, for programs
  pegasus sim run mine.toml              accelerators, domains and workloads of your own
  pegasus sim run all                    everything; some minutes on one core
  pegasus sim run --report DIR           the same, as a page with figures
  pegasus sim run P4 --plan XC --trace xc.json      a picture of one run, for Perfetto
  pegasus sim run P4 --plan XC --record xc.events   the input of the scheduler
  pegasus sim replay xc.events --policy lag   shares and waits under another policy
  pegasus sim coordination both.trace         from pegasus trace --cpus: did the chosen domains' vCPUs run?

run may be left out: pegasus sim P4. One file goes with replay and with coordination.

A scenario is a TOML file; the smallest:

  time = "10s"
  [[accelerator]]
  name = "gpu"
  [[domain]]
  name = "short"
  workload = "LUD"                   # 1 ms kernels, 0.2 ms apart
  credits = 256                      # the default, which long has
  [[domain]]
  name = "long"
  workload = "mine"
  [workload.mine]
  cpu = "1ms"
  kernel = "8ms"
  calls = 50
  [[plan]]
  name = "fair"
  policy = "lag"
  [[row]]                            # what you expect
  text = "half of the time"
  value = "fair.short.part"
  min = 49.0
  max = 51.0

In JSON, always an array: of each scenario its seed, metrics (by plan and domain), rows (each with
its values and a verdict), and verdict, "holds" or "fails". The exit status is 1 if one fails.
docs/simulator.md has the model, the keys and the metrics.`},
		{name: "version", args: "[--json]", short: "versions of this command and the daemon", run: version, complete: words(), long: `
Prints the version of this command, and the daemon's if one runs.`},
		{name: "completion", args: "bash|zsh|fish", short: "print completions for a shell", run: completion, complete: words(shells...), long: `
Prints a script that makes a shell complete commands, flags and their values, domains, accelerators,
policies and scenarios. Names come from the daemon that runs; completing starts none, and waits
for it for half a second at most.

For bash, now, and from the next login on for all users:

  . <(pegasus completion bash)
  pegasus completion bash >/usr/share/bash-completion/completions/pegasus

For zsh and for fish:

  pegasus completion zsh >/usr/local/share/zsh/site-functions/_pegasus
  pegasus completion fish >/usr/share/fish/vendor_completions.d/pegasus.fish`},
		{name: "document", args: "man DIR | markdown FILE", short: "write man pages, or the page of all commands", run: document, hidden: true, long: `
Writes man pages of all commands into a directory, or the page docs/zz_commands.md.`},
	}
}
