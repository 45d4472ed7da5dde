// The view of one domain: where its time went, its waits, its memory and its events.

import {call} from "./client.js";
import {state, setDomain} from "./state.js";
import {h, put, percent, owed, bytes, time, count, look, form, table, announce} from "./dom.js";
import {shares, amounts, parts, bar, histogram, keys, square} from "./chart.js";
import {eventTable} from "./events.js";

const activities = [["On the accelerator", "c1"], ["Waiting for its turn", "c2"], ["Waiting for a CPU", "c5"], ["Idle", "c0"]];

const bucket = (i) => (i === 0 ? "none" : "< " + time(2 ** i).replace(/\.\d+/, ""));

export function domainView(name) {
	const dd = {};
	const figure = (key, text) => h("div", {}, h("dt", {}, text), (dd[key] = h("dd", {})));
	const section = (id, title, ...parts) => h("section", {class: "card", "aria-labelledby": id}, h("h2", {id}, title), ...parts);
	const pill = h("span", {class: "pill"}), gone = h("p", {class: "alert", role: "alert"}), set = h("div", {});
	const spentBar = h("div", {}), spentKeys = h("div", {}), spentChart = h("div", {});
	const shareChart = h("div", {}), waitChart = h("div", {}), waitTable = h("details", {}, h("summary", {}, "Waits as a table"), h("div", {}));
	const memoryChart = h("div", {}), why = h("ul", {class: "why"}), events = eventTable(`Events of ${name}, the newest first`, (e) => e.domain === name, false);
	let role = null, drawn = 0, credits = null, ended = false, timer = null;

	async function read() {
		try {
			const at = "/v1/domains/" + encodeURIComponent(name);
			const [d, e] = await Promise.all([call("GET", at), call("GET", at + "/explanation")]);
			if (ended) return;
			waits(d.waits ?? []);
			const lines = e.lines.join("\n");
			if (why.dataset.text !== lines) {
				why.dataset.text = lines;
				why.replaceChildren(...e.lines.map((l) => h("li", {}, l)));
			}
		} catch { /* the connection's state is shown above */ }
		if (!ended) timer = setTimeout(read, 2000);
	}

	function waits(counts) {
		const from = Math.max(0, counts.findIndex((n, i) => i > 0 && n > 0) - 1), all = counts.reduce((a, b) => a + b, 0);
		const shown = counts.map((n, i) => [bucket(i), n]).filter((_, i) => i === 0 || i > from);
		if (!all) return waitChart.replaceChildren(h("p", {class: "note"}, "The domain has made no call yet."));
		const d = state.domains.get(name);
		waitChart.replaceChildren(histogram(waitChart.clientWidth, `Waits of ${count(all)} calls: half wait at most ${time(d?.wait_p50_ns)}, 99 % at most ${time(d?.wait_p99_ns)}`,
			shown.map((b) => b[1]), shown.map((b) => b[0])));
		waitTable.lastElementChild.replaceChildren(...(waitTable.open ? [table("Calls by their wait at the gate", ["Wait", "Calls", "Part"],
			shown.map(([t, n]) => [t, count(n), percent(n / all)]))] : []));
	}

	function draw(d) {
		const now = Date.now(), samples = state.history.get(name) ?? [];
		shareChart.replaceChildren(shares(shareChart.clientWidth, `Share of ${name} in the last 10 minutes; now ${percent(d.share)}, entitled to ${owed(d.entitled)}`,
			[{name, look: look(name), samples}], now));
		const s = d.spent, values = [s.accelerator, s.turn, s.vcpu, s.idle];
		const said = activities.map(([text], i) => `${text.toLowerCase()} ${percent(values[i])}`).join(", ");
		spentBar.replaceChildren(s.window_ns ? bar(`The last ${time(s.window_ns)}: ${said}`, values, activities.map((a) => a[1])) : h("p", {class: "note"}, "No data yet."));
		spentKeys.replaceChildren(keys(activities.map(([text, c], i) => [square(c), `${text} ${percent(values[i])}`])));
		spentChart.replaceChildren(parts(spentChart.clientWidth, "The same over the last 10 minutes, as far as the page was open", samples.filter((v) => v.spent).map((v) => ({at: v.at, parts: v.spent})),
			activities.map((a) => a[1]), now));
		const most = d.memory_quota || Math.max(...samples.map((v) => v.memory), 1 << 20);
		memoryChart.replaceChildren(amounts(memoryChart.clientWidth, `Memory of ${name} in the last 10 minutes; now ${bytes(d.memory)}`, samples.map((v) => ({at: v.at, value: v.memory})), most, bytes, now));
	}

	return {
		title: name,
		parts: [
			h("div", {class: "title"}, h("h1", {}, name), pill), gone,
			h("div", {class: "cards"},
				section("share", "Share", h("dl", {class: "figures"}, figure("share", "Share"), figure("entitled", "Entitled"), figure("credits", "Credits"), figure("accelerator", "Accelerator"), figure("objective", "Objective")),
					set, shareChart),
				section("time", "Where its time went", spentBar, spentKeys, spentChart),
				section("waits", "Waits at the gate", h("dl", {class: "figures"}, figure("p50", "Half wait at most"), figure("p99", "99 % wait at most"), figure("calls", "Calls")), waitChart, waitTable),
				section("memory", "Memory", h("dl", {class: "figures"}, figure("memory", "Device memory"), figure("quota", "Quota"), figure("guarantee", "Guaranteed"), figure("swapped", "Evicted"), figure("host", "Host memory")), memoryChart),
				section("why", "Why it runs or waits", why),
				section("more", "More", h("dl", {class: "figures"}, figure("gpu", "Accelerator time"), figure("processes", "Processes"), figure("worker", "CPU time of workers"), figure("steal", "Steal time of vCPUs"), figure("owner", "Owner"), figure("machine", "Machine"))),
				h("section", {class: "card wide", "aria-labelledby": "its"}, h("h2", {id: "its"}, "Events"), events.part)),
		],
		update(what) {
			if (what === "events") return events.update();
			const d = state.domains.get(name);
			put(gone, state.link === "live" && !d ? `There is no domain ${name}.` : "");
			if (!d) return;
			if (!timer) timer = setTimeout(read, 0);
			put(pill, d.state);
			pill.dataset.state = d.state;
			const texts = {
				share: percent(d.share), entitled: owed(d.entitled), credits: String(d.credits), accelerator: d.accelerator || "–", objective: d.objective?.state ?? "none",
				p50: time(d.wait_p50_ns), p99: time(d.wait_p99_ns), calls: count(d.calls),
				memory: bytes(d.memory), quota: d.memory_quota ? bytes(d.memory_quota) : "the accelerator's", guarantee: d.memory_guarantee ? bytes(d.memory_guarantee) : "none",
				swapped: bytes(d.swapped), host: bytes(d.host_memory) + (d.host_memory_quota ? " of " + bytes(d.host_memory_quota) : ""),
				gpu: time(d.gpu_ns), processes: String(d.processes), worker: time(d.worker_cpu_ns), steal: d.vcpus ? percent(d.steal ?? 0) : "–",
				owner: d.owner || "–", machine: d.machine?.state ?? "–",
			};
			for (const [k, v] of Object.entries(texts)) put(dd[k], v);
			if (credits !== null && credits !== d.credits) announce(`Credits of ${name}: ${d.credits}`);
			credits = d.credits;
			if (role !== state.role) {
				role = state.role;
				set.replaceChildren(role === "operate" ? creditsForm(name, d.credits) : "");
			}
			if (Date.now() - drawn > 1900) {
				drawn = Date.now();
				draw(d);
			}
		},
		end() { ended = true; clearTimeout(timer); },
	};
}

function creditsForm(name, now) {
	return form({class: "set", "aria-label": "Credits of " + name},
		(f) => setDomain(name, {credits: f.elements.credits.value}),
		() => `The credits of ${name} are set`,
		h("label", {}, "Credits, 1 to 65535", h("input", {type: "number", name: "credits", min: 1, max: 65535, required: true, value: now})),
		h("button", {}, "Set credits"));
}
