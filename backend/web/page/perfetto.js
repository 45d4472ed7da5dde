// Spans as a file for Perfetto, in Chrome's trace event format, as `pegasus trace --perfetto` writes them.

const origin = "https://ui.perfetto.dev";

export function convert(spans) {
	const names = ["accelerators: who has the engines", "gates: whose window it is", "CPUs: which vCPUs run"];
	const group = {engine: 1, gate: 2, cpu: 3};
	const zero = spans.reduce((least, s) => Math.min(least, s.from_ns), Infinity);
	const tracks = new Map(), events = [];
	names.forEach((name, i) => events.push({name: "process_name", ph: "M", pid: i + 1, tid: 0, args: {name}}));
	for (const s of spans) {
		const line = s.line === "cpu" ? (s.cpu < 0 ? "some CPU" : "CPU " + s.cpu) : s.line === "gate" ? `${s.accelerator} ${s.domain}` : `${s.accelerator} ${s.class}`;
		const pid = group[s.line], key = pid + line;
		if (!tracks.has(key)) {
			tracks.set(key, tracks.size + 1);
			events.push({name: "thread_name", ph: "M", pid, tid: tracks.get(key), args: {name: line}});
		}
		events.push({name: s.line === "cpu" ? `${s.domain} vCPU ${s.vcpu}` : s.domain + (s.name ? ": " + s.name : ""), ph: "X", pid, tid: tracks.get(key),
			ts: (s.from_ns - zero) / 1e3, dur: (s.to_ns - s.from_ns) / 1e3, args: {domain: s.domain}});
	}
	return JSON.stringify({displayTimeUnit: "ms", traceEvents: events});
}

// save gives the spans to the user as a file.
export function save(spans) {
	const url = URL.createObjectURL(new Blob([convert(spans)], {type: "application/json"}));
	const a = document.createElement("a");
	a.href = url;
	a.download = "pegasus-timeline.json";
	a.click();
	setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// open loads Perfetto's page in a new tab and gives it the spans when it answers. It is the only thing on this page that
// leaves the host, and only on a click.
export function open(spans, failed) {
	const tab = window.open(origin);
	if (!tab) return failed("The browser does not permit a new tab: download the file and open it in Perfetto.");
	const buffer = new TextEncoder().encode(convert(spans)).buffer;
	const ask = setInterval(() => tab.postMessage("PING", origin), 100);
	const end = () => { clearInterval(ask); clearTimeout(late); removeEventListener("message", hear); };
	const late = setTimeout(() => { end(); failed("Perfetto's page does not answer: download the file and open it there."); }, 30000);
	function hear(e) {
		if (e.source !== tab || e.origin !== origin || e.data !== "PONG") return;
		end();
		tab.postMessage({perfetto: {buffer, title: "Pegasus", fileName: "pegasus-timeline.json"}}, origin);
	}
	addEventListener("message", hear);
}
