// The time line: the vCPUs on each CPU of the host, above the windows of the accelerators and the work in them.

import {lines, Problem} from "./client.js";
import {h, put, percent, time, look, announce, table} from "./dom.js";
import {save, open} from "./perfetto.js";

const keptFor = 60e9; // ns of spans
const most = 200000;  // spans
const rowHeight = 18, gutter = 144, axis = 22;
const groups = [["cpu", "vCPUs on CPUs"], ["gate", "Windows"], ["engine", "Work on accelerators"]];

export function timelineView() {
	let spans = [], newest = 0, width = 5e9, end = null, abort = null, frame = 0, marked = null, left = false, lost = 0, places = [];
	const canvas = h("canvas", {tabindex: 0, role: "img", "aria-describedby": "how told", "aria-label": "Time line", height: 200});
	const told = h("p", {class: "note", id: "told"}), mark = h("p", {class: "note", role: "status"}), problem = h("p", {class: "alert", role: "alert"});
	const summary = h("div", {});
	const record = h("button", {type: "button", class: "main", onclick: () => (abort ? stop() : start())}, "Stop");
	const button = (text, act) => h("button", {type: "button", onclick: act}, text);
	const zoom = (by) => { width = Math.min(Math.max(width * by, 1e6), keptFor); later(); };
	const move = (by) => { end = Math.min((end ?? newest) + by * width, newest); if (end >= newest && abort) end = null; later(); };

	async function start() {
		spans = [];
		end = null;
		lost = 0;
		problem.textContent = "";
		put(record, "Stop");
		const mine = (abort = new AbortController());
		try {
			await lines("/v1/timeline", take, mine.signal);
			throw new Problem({});
		} catch (e) {
			if (abort !== mine) return;
			abort = null;
			put(record, "Record");
			if (e instanceof Problem) problem.textContent = e.code === "conflict" ? e.message : "The recording ended: " + e.message;
			if (!left && (e.code === "network" || !(e instanceof Problem))) setTimeout(() => { if (!left && !abort) start(); }, 1500);
		}
	}

	function stop() {
		abort?.abort();
		abort = null;
		end = newest;
		put(record, "Record");
		later();
	}

	function take(v) {
		lost += v.lost ?? 0;
		if (v.lost || v.to_ns <= v.from_ns) return;
		spans.push(v);
		newest = Math.max(newest, v.to_ns);
		if (spans.length > most || spans.length % 1024 === 0) {
			const from = newest - keptFor;
			spans = spans.slice(Math.max(0, spans.length - most)).filter((s) => s.to_ns > from);
		}
		later();
	}

	function later() {
		if (!frame && !left) frame = requestAnimationFrame((now) => { frame = 0; draw(now); });
	}

	const lineOf = (v) => (v.line === "cpu" ? (v.cpu < 0 ? "some CPU" : "CPU " + v.cpu) : v.line === "gate" ? `${v.accelerator} ${v.domain}` : `${v.accelerator} ${v.class}`);
	const textOf = (v) => (v.line === "cpu" ? `${v.domain} vCPU ${v.vcpu}` : v.line === "gate" ? `${v.domain}: window` : v.domain + (v.name ? ": " + v.name : ""));

	let before = 0;
	function draw() {
		const to = end ?? newest, from = to - width;
		const seen = spans.filter((v) => v.to_ns > from && v.from_ns < to);
		const rows = new Map();
		for (const [g] of groups) {
			const names = [...new Set(spans.filter((v) => v.line === g).map(lineOf))].sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
			rows.set(g, names);
		}
		let height = axis + 4;
		for (const [g] of groups) height += 20 + rowHeight * Math.max(rows.get(g).length, 1);
		const wide = canvas.clientWidth || 600, ratio = devicePixelRatio || 1;
		if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(height * ratio)) {
			canvas.width = Math.round(wide * ratio);
			canvas.height = Math.round(height * ratio);
			canvas.style.height = height + "px";
		}
		const c = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), color = (n) => style.getPropertyValue(n).trim();
		const palette = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => color("--s" + n)), soft = color("--soft"), text = color("--text"), card = color("--card"), grid = color("--line"), track = color("--track");
		c.setTransform(ratio, 0, 0, ratio, 0, 0);
		c.fillStyle = card;
		c.fillRect(0, 0, wide, height);
		c.font = "11px system-ui, sans-serif";
		const x = (ns) => gutter + (wide - gutter) * (ns - from) / width;
		const step = [1, 2, 5].flatMap((m) => [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10].map((p) => m * p)).sort((a, b) => a - b).find((v) => (wide - gutter) * v / width >= 64) ?? 5e10;
		c.textAlign = "center";
		for (let k = 0; k * step <= width; k++) { // times before the right end
			const at = x(to - k * step);
			c.fillStyle = grid;
			c.fillRect(at, axis, 1, height);
			c.fillStyle = soft;
			if (at < wide - 20) c.fillText(k ? "−" + time(k * step) : "now", at, 14);
		}
		c.textAlign = "left";
		places = [];
		const y = new Map();
		let at = axis;
		for (const [g, title] of groups) {
			c.fillStyle = text;
			c.font = "600 11px system-ui, sans-serif";
			c.fillText(title, 0, at + 14);
			c.font = "11px system-ui, sans-serif";
			at += 20;
			if (!rows.get(g).length) {
				c.fillStyle = soft;
				c.fillText("none seen", gutter, at + 13);
				at += rowHeight;
			}
			for (const name of rows.get(g)) {
				y.set(g + name, at);
				c.fillStyle = track;
				c.globalAlpha = 0.5;
				c.fillRect(gutter, at + 1, wide - gutter, rowHeight - 3);
				c.globalAlpha = 1;
				c.fillStyle = soft;
				c.fillText(name.length > 20 ? name.slice(0, 19) + "…" : name, 0, at + 13, gutter - 6);
				at += rowHeight;
			}
		}
		c.save();
		c.beginPath();
		c.rect(gutter, 0, wide - gutter, height);
		c.clip();
		for (const v of seen) {
			const top = y.get(v.line + lineOf(v)), a = x(v.from_ns), w = Math.max(x(v.to_ns) - a, 0.7), l = look(v.domain);
			c.fillStyle = palette[l.number];
			c.globalAlpha = v.line === "gate" ? 0.75 : 1;
			c.fillRect(a, top + 1, w, rowHeight - 3);
			c.globalAlpha = 1;
			places.push([a, a + w, top, v]);
			if (l.dash && w > 6) { // after eight domains colours come again, hatched
				c.fillStyle = card;
				for (let k = a + 3; k < a + w - 1; k += 6) c.fillRect(k, top + 1, 1.5, rowHeight - 3);
			}
			if (w > 46) {
				c.fillStyle = card;
				c.fillText(textOf(v), Math.max(a, gutter) + 4, top + 13, w - 8);
			}
			if (v === marked) {
				c.strokeStyle = text;
				c.lineWidth = 2;
				c.strokeRect(a, top + 1, w, rowHeight - 3);
			}
		}
		c.restore();
		if (performance.now() - before > 900) {
			before = performance.now();
			tell(seen, from, to);
		}
	}

	// tell writes the picture in words and figures: how much of each domain's windows had one of its vCPUs running.
	function tell(seen, from, to) {
		const domains = [...new Set(seen.map((v) => v.domain))].sort();
		const clip = (v) => [Math.max(v.from_ns, from), Math.min(v.to_ns, to)];
		const of = (d, line) => union(seen.filter((v) => v.domain === d && v.line === line).map(clip));
		const rows = domains.map((d) => {
			const cpu = of(d, "cpu"), gate = of(d, "gate"), work = of(d, "engine");
			return [d, time(length(work)), time(length(gate)), time(length(cpu)), length(gate) ? percent(length(both(cpu, gate)) / length(gate)) : "–"];
		});
		put(told, `${time(width)} up to ${end === null ? "now" : "the point where you stopped"}: spans: ${seen.length}, domains: ${domains.length}` +
			(lost ? `; missing pieces of work: ${lost}` : "") + ".");
		summary.replaceChildren(table("The domains in the visible part", ["Domain", "On accelerators", "In windows", "vCPUs ran", "Of its windows, a vCPU ran in"], rows));
	}

	function point(px, py) {
		return places.findLast(([a, b, top]) => px >= a - 1 && px <= b + 1 && py >= top && py < top + rowHeight)?.[3] ?? null;
	}
	function choose(v) {
		marked = v;
		put(mark, v ? `${textOf(v)}, on ${lineOf(v)}, for ${time(v.to_ns - v.from_ns)}` : "");
		later();
	}

	canvas.addEventListener("pointermove", (e) => {
		if (e.buttons & 1) {
			move(-e.movementX / (canvas.clientWidth - gutter));
			return;
		}
		choose(point(e.offsetX, e.offsetY));
	});
	canvas.addEventListener("wheel", (e) => {
		if (!e.ctrlKey) return;
		e.preventDefault();
		zoom(e.deltaY > 0 ? 1.25 : 0.8);
	}, {passive: false});
	canvas.addEventListener("keydown", (e) => {
		const act = {ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), End: () => { end = abort ? null : newest; later(); },
			n: () => step(1), p: () => step(-1)}[e.key];
		if (!act) return;
		e.preventDefault();
		act();
	});
	function step(by) { // from one span of the picture to the next
		const all = places.map((p) => p[3]).sort((a, b) => a.from_ns - b.from_ns);
		if (!all.length) return;
		const i = all.indexOf(marked);
		choose(all[i < 0 ? all.length - 1 : Math.min(Math.max(i + by, 0), all.length - 1)]);
	}
	const resized = new ResizeObserver(later);
	resized.observe(canvas);
	const scheme = matchMedia("(prefers-color-scheme: dark)");
	scheme.addEventListener("change", later);

	start();
	return {
		title: "Time line",
		parts: [h("h1", {}, "Time line"), h("section", {class: "card", "aria-label": "Time line"},
			h("div", {class: "tools"}, record, button("Zoom in", () => zoom(0.5)), button("Zoom out", () => zoom(2)), button("Earlier", () => move(-0.5)), button("Later", () => move(0.5)),
				button("Download for Perfetto", () => { save(spans); announce("The time line is saved"); }),
				button("Open in ui.perfetto.dev", () => open(spans, (text) => { problem.textContent = text; }))),
			canvas, mark, problem, told,
			h("p", {class: "note", id: "how"}, "Keys in the picture: left and right move, + and − zoom, End follows, n and p go from span to span. “Download” writes a file for Perfetto and stays local; “Open in ui.perfetto.dev” loads Google's page in a new tab, which gets the recorded spans in your browser."),
			h("h2", {}, "In figures"), summary)],
		end() {
			left = true;
			abort?.abort();
			abort = null;
			cancelAnimationFrame(frame);
			resized.disconnect();
			scheme.removeEventListener("change", later);
		},
	};
}

// Sets of periods, in order and apart from each other.
function union(all) {
	const out = [];
	for (const [a, b] of all.sort((p, q) => p[0] - q[0])) {
		const last = out[out.length - 1];
		if (last && a <= last[1]) last[1] = Math.max(last[1], b);
		else out.push([a, b]);
	}
	return out;
}

function both(p, q) {
	const out = [];
	for (let i = 0, j = 0; i < p.length && j < q.length;) {
		const a = Math.max(p[i][0], q[j][0]), b = Math.min(p[i][1], q[j][1]);
		if (a < b) out.push([a, b]);
		p[i][1] < q[j][1] ? i++ : j++;
	}
	return out;
}

const length = (all) => all.reduce((sum, [a, b]) => sum + b - a, 0);
