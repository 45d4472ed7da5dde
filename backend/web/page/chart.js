// Charts in SVG. Each has a text for readers that do not see it.

import {h, s, percent} from "./dom.js";

const height = 190, left = 58, right = 8, top = 8, bottom = 24;
const spans = [60e3, 120e3, 300e3, 600e3]; // ms: the times that charts show

// spanOf returns the shortest time that shows the samples since their first.
const spanOf = (first, to) => spans.find((s) => to - first <= s) ?? spans[spans.length - 1];

// frame returns an empty chart of so many pixels, so that its texts have one size in all windows.
function frame(width, label, to, first, ticks) {
	width = Math.max(width, 240);
	const span = spanOf(first, to);
	const g = s("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
	const y = (v) => top + (height - top - bottom) * (1 - v);
	for (const [v, text] of ticks) {
		g.append(s("line", {class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v)}),
			s("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, text));
	}
	const steps = width < 480 ? 2 : 5; // as many as have room
	for (let m = 0; m <= steps; m++) {
		const x = left + (width - left - right) * (1 - m / steps), ago = m * span / steps / 1e3;
		g.append(s("text", {x, y: height - 6, "text-anchor": m === 0 ? "end" : m === steps ? "start" : "middle"}, m === 0 ? "now" : span > 120e3 ? `−${Number((ago / 60).toFixed(1))} min` : `−${ago} s`));
	}
	const x = (at) => left + (width - left - right) * (1 - (to - at) / span);
	return {g, x, y, within: (samples) => samples.filter((v) => v.at >= to - span)};
}

// shares draws the share of each domain over time, and dotted the part it is entitled to.
// lines: [{name, look, samples}]
export function shares(width, label, lines, to) {
	const {g, x, y, within} = frame(width, label, to, Math.min(to, ...lines.map((l) => l.samples[0]?.at ?? to)), [[0, "0 %"], [0.25, "25 %"], [0.5, "50 %"], [0.75, "75 %"], [1, "100 %"]]);
	for (const l of lines) {
		const points = within(l.samples);
		const path = (of) => points.map((p) => `${x(p.at).toFixed(1)},${y(Math.min(of(p), 1)).toFixed(1)}`).join(" ");
		if (points.some((p) => p.entitled)) g.append(s("polyline", {class: "owed " + l.look.colour, points: path((p) => p.entitled)}));
		g.append(s("polyline", {class: `line ${l.look.colour} ${l.look.dash}`, points: path((p) => p.share)}));
	}
	return g;
}

// amounts draws one quantity over time, up to most.
export function amounts(width, label, samples, most, text, to) {
	const {g, x, y, within} = frame(width, label, to, samples[0]?.at ?? to, [[0, text(0)], [0.5, text(most / 2)], [1, text(most)]]);
	const points = within(samples);
	if (points.length) {
		const line = points.map((p) => `${x(p.at).toFixed(1)},${y(Math.min(p.value / most, 1)).toFixed(1)}`).join(" ");
		g.append(s("polyline", {class: "line c1", points: line}));
	}
	return g;
}

// parts draws parts that add up to 1, over time. classes are the colours from the bottom up.
export function parts(width, label, samples, classes, to) {
	const {g, x, y, within} = frame(width, label, to, samples[0]?.at ?? to, [[0, "0 %"], [0.5, "50 %"], [1, "100 %"]]);
	const points = within(samples);
	const base = points.map(() => 0);
	for (const [i, c] of classes.entries()) {
		const up = points.map((p, n) => [x(p.at), y(base[n] + p.parts[i])]);
		const down = points.map((p, n) => [x(p.at), y(base[n])]).reverse();
		if (points.length > 1) g.append(s("polygon", {class: "fill " + c, points: [...up, ...down].map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" ")}));
		points.forEach((p, n) => { base[n] += p.parts[i]; });
	}
	return g;
}

// bar draws parts that add up to 1 as one bar.
export function bar(label, values, classes) {
	const g = s("svg", {viewBox: "0 0 640 26", role: "img", "aria-label": label, preserveAspectRatio: "none"});
	let at = 0;
	for (const [i, v] of values.entries()) {
		g.append(s("rect", {class: "fill " + classes[i], x: 640 * at, width: Math.max(640 * v, 0), y: 0, height: 26}));
		at += v;
	}
	return g;
}

// histogram draws counts as bars, with the text of each bucket below it.
export function histogram(width, label, counts, texts) {
	width = Math.max(width, 240);
	const g = s("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
	const most = Math.max(...counts, 1), total = counts.reduce((a, b) => a + b, 0) || 1;
	const w = (width - left - right) / counts.length;
	const y = (v) => top + (height - top - bottom) * (1 - v);
	for (const v of [0, 0.5, 1]) {
		g.append(s("line", {class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v)}),
			s("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, percent(v * most / total)));
	}
	const each = Math.ceil(counts.length * 64 / (width - left - right));
	counts.forEach((n, i) => {
		if (n) g.append(s("rect", {class: "fill c1", x: left + i * w + 1, width: Math.max(w - 2, 1), y: Math.min(y(n / most), y(0) - 1), height: Math.max(y(0) - y(n / most), 1)}));
		if (i % each === 0) g.append(s("text", {x: left + (i + 0.5) * w, y: height - 6, "text-anchor": i > counts.length - 1 - each / 2 ? "end" : "middle"}, texts[i]));
	});
	return g;
}

// spark draws a share over time, small.
export function spark(samples, look) {
	const g = s("svg", {class: "inline", viewBox: "0 0 90 20", "aria-hidden": "true"});
	const step = Math.max(1, Math.floor(samples.length / 60));
	const points = samples.filter((_, i) => (samples.length - 1 - i) % step === 0);
	if (points.length > 1) {
		const from = points[0].at, to = points[points.length - 1].at;
		g.append(s("polyline", {class: `line ${look.colour}`, points: points.map((p) => `${(90 * (p.at - from) / (to - from)).toFixed(1)},${(19 - 18 * Math.min(p.share, 1)).toFixed(1)}`).join(" ")}));
	}
	return g;
}

// keys returns the legend of a chart.
export const keys = (items) => h("ul", {class: "keys"}, items.map((i) => h("li", {}, i)));

export const square = (c) => s("svg", {class: "swatch " + c, viewBox: "0 0 14 10", width: 14, height: 10, "aria-hidden": "true"}, s("rect", {class: "fill", width: 14, height: 10}));
