package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pegasus/backend/control"
)

// Styles; the program leaves the colours out where the environment has NO_COLOR or the terminal has none.
var (
	bold   = ansi.NewStyle().Bold()
	faint  = ansi.NewStyle().Faint()
	marked = ansi.NewStyle().Reverse(true)
	bad    = ansi.NewStyle().Bold().ForegroundColor(ansi.Red)
	warned = ansi.NewStyle().ForegroundColor(ansi.Yellow)
	graph  = ansi.NewStyle().ForegroundColor(ansi.Cyan)
)

// largeError is the part of an accelerator by which a domain falls short before its error is coloured.
const largeError = 0.05

// View draws the screen.
func (m Model) View() tea.View {
	v := tea.NewView(m.Screen())
	v.AltScreen = true
	v.WindowTitle = "pegasus top"
	return v
}

// Screen returns the lines of the screen: as many as it has, none longer than it is wide.
func (m Model) Screen() string {
	if m.width <= 0 || m.height <= 0 {
		return ""
	}
	lines := append(m.top(), m.body()...)
	foot := append(m.status(), m.footer())
	for len(lines) < m.height-len(foot) {
		lines = append(lines, "")
	}
	lines = append(lines[:max(m.height-len(foot), 0)], foot...)
	lines = lines[max(len(lines)-m.height, 0):]
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, m.width, "…")
	}
	return strings.Join(lines, "\n")
}

// top returns the lines above the body.
func (m *Model) top() []string {
	lines := []string{m.title()}
	if m.page != listPage || m.choice != nil || m.seen == nil {
		return lines
	}
	lines = append(lines, m.accelerators()...)
	return append(lines, bold.Styled(m.heads()))
}

// bodyHeight returns the number of lines between the top and the foot.
func (m *Model) bodyHeight() int { return m.height - len(m.top()) - 2 }

// pageHeight returns the number of lines of a page.
func (m *Model) pageHeight() int { return max(m.height-3, 1) }

func (m *Model) body() []string {
	switch {
	case m.choice != nil:
		return m.choiceLines()
	case m.page != listPage:
		lines := m.pageLines()
		return lines[min(m.scroll, len(lines)):]
	case m.seen == nil:
		return []string{"", "waiting for the daemon's first answer"}
	}
	rows := m.rows()
	if len(rows) == 0 {
		text := "no domains: `pegasus run -- PROGRAM` makes one"
		if m.filter != "" {
			text = fmt.Sprintf("no domain matches %q", m.filter)
		}
		return []string{text}
	}
	var lines []string
	for _, r := range rows[m.first:min(len(rows), m.first+max(m.bodyHeight(), 0))] {
		lines = append(lines, m.rowLine(r))
	}
	return lines
}

func (m *Model) title() string {
	parts := []string{bold.Styled("pegasus top")}
	if m.seen != nil {
		parts = append(parts, m.seen.At.Format("15:04:05"))
	}
	if m.frozen {
		parts = append(parts, marked.Styled("FROZEN"))
	}
	if m.seen != nil && m.page == listPage {
		parts = append(parts, control.Count(len(m.seen.Domains), "domain"))
		order := "↓"
		if m.reverse {
			order = "↑"
		}
		parts = append(parts, "by "+m.sort+" "+order)
		if m.filter != "" {
			parts = append(parts, fmt.Sprintf("filter %q", clean(m.filter)))
		}
	}
	return strings.Join(parts, "  ")
}

// accelerators returns the table of accelerators, at most a third of the screen.
func (m *Model) accelerators() []string {
	name, turn := m.nameWidth(), m.width
	wide := m.width >= 70
	line := func(a, policy, util, history, memory, turns string) string {
		text := " " + fit(a, name, true) + " " + fit(policy, 7, true) + " " + fit(util, 7, false)
		if wide {
			text += " " + graph.Styled(fit(history, 10, true)) + " " + fit(memory, 19, false)
		}
		return text + "  " + fit(turns, turn-ansi.StringWidth(text)-2, true)
	}
	lines := []string{bold.Styled(ansi.Strip(line("ACCELERATOR", "POLICY", "BUSY", historyHead, "MEMORY", "TURN")))}
	all := m.seen.Accelerators
	for _, a := range all[:m.acceleratorsShown()] {
		lines = append(lines, line(a.Name, a.Policy, percent(a.Busy),
			spark(m.busy[a.Name], shareOf, m.seen.At, m.bucket(), 10, 1), memory(a.MemoryUsed, a.Memory), orDash(m.seen.turn(a.Name))))
	}
	if m.height >= 16 {
		lines = append(lines, "")
	}
	return lines
}

func (m *Model) acceleratorsShown() int { return min(len(m.seen.Accelerators), max((m.height-6)/3, 1)) }

func shareOf(s control.Sample) float64 { return s.Share }

// bucket returns the time of one character of a sparkline.
func (m *Model) bucket() time.Duration { return max(m.opt.Interval, bucketTime) }

// nameWidth returns the width of the column of names.
func (m *Model) nameWidth() int {
	longest := len("ACCELERATOR")
	for _, d := range m.seen.Domains {
		longest = max(longest, ansi.StringWidth(d.Name))
	}
	return min(longest, max(11, m.width/5))
}

// layout returns the columns on the screen with their widths, and the number of those that follow.
func (m *Model) layout() (shown []column, hidden int) {
	all := m.columns
	first := all[0]
	first.width = m.nameWidth()
	shown = []column{first}
	used := 1 + first.width
	rest := all[1+min(m.shift, len(all)-2):]
	graph := -1
	for i, c := range rest {
		if used+1+c.width > m.width {
			hidden = len(rest) - i
			break
		}
		used += 1 + c.width
		if c.head == historyHead {
			graph = len(shown)
		}
		shown = append(shown, c)
	}
	if graph >= 0 {
		shown[graph].width += m.width - used
	}
	return shown, hidden
}

// hidden returns the number of columns to the right of those on the screen.
func (m *Model) hidden() int {
	if m.seen == nil || m.page != listPage {
		return 0
	}
	_, n := m.layout()
	return n
}

func (m *Model) heads() string {
	var cells []string
	shown, _ := m.layout()
	for _, c := range shown {
		cells = append(cells, fit(c.head, c.width, c.left))
	}
	return " " + strings.Join(cells, " ")
}

func (m *Model) rowLine(r Row) string {
	selected := r.Name == m.cursor
	var cells []string
	shown, _ := m.layout()
	for _, c := range shown {
		text := c.text(r)
		if c.head == historyHead {
			text = spark(m.domains[r.Name], shareOf, m.seen.At, m.bucket(), c.width, 1)
		}
		cell := fit(text, c.width, c.left)
		if !selected {
			cell = m.colour(c, r, cell)
		}
		cells = append(cells, cell)
	}
	line := strings.Join(cells, " ")
	if selected {
		return marked.Styled("›" + line)
	}
	return " " + line
}

// colour returns a cell with its style.
func (m *Model) colour(c column, r Row, cell string) string {
	switch {
	case c.head == historyHead:
		return graph.Styled(cell)
	case c.head == "ERROR" && r.Error != nil && *r.Error < -largeError && r.State != "idle":
		return warned.Styled(cell)
	case c.head == "SLO" && m.opt.Objective(r.Domain) == "violated":
		return bad.Styled(cell)
	case c.head == "STEAL" && r.Steal > largeError:
		return warned.Styled(cell)
	}
	return cell
}

// choiceLines returns the lines of a list to choose from.
func (m *Model) choiceLines() []string {
	lines := []string{"", bold.Styled(clean(m.choice.title) + ":")}
	room := max(m.height-len(lines)-3, 1)
	from := max(0, min(m.choice.at-room/2, len(m.choice.items)-room))
	for i, item := range m.choice.items[from:min(from+room, len(m.choice.items))] {
		if from+i == m.choice.at {
			lines = append(lines, marked.Styled("› "+clean(item)))
		} else {
			lines = append(lines, "  "+clean(item))
		}
	}
	return lines
}

// mostStatus is the greatest number of lines of a question or a message.
const mostStatus = 5

// status returns the lines above the keys: a question or a message as a whole, where the screen has room for it.
func (m *Model) status() []string {
	style, text := bold, ""
	switch {
	case m.confirm != nil:
		text = clean(m.confirm.text) + " y: yes, any other key: no"
	case m.prompt != nil:
		return []string{bold.Styled(clean(m.prompt.label)+": ") + clean(m.prompt.text) + marked.Styled(" ")}
	case m.gone != "":
		style, text = bad, clean(m.gone)
	case m.message != "":
		text = clean(m.message)
	case m.page != listPage || m.choice != nil || m.seen == nil:
		return []string{""}
	default:
		return []string{m.more()}
	}
	lines := strings.Split(ansi.Wrap(text, m.width, ""), "\n")
	if most := max(min(mostStatus, m.height-2), 1); len(lines) > most {
		lines[most-1] = ansi.Truncate(strings.Join(lines[most-1:], " "), m.width-1, "") + "…"
		lines = lines[:most]
	}
	for i := range lines {
		lines[i] = style.Styled(lines[i])
	}
	return lines
}

// more returns the line about rows and columns that the screen does not show.
func (m *Model) more() string {
	rows := m.rows()
	var parts []string
	if room := m.bodyHeight(); len(rows) > room {
		parts = append(parts, fmt.Sprintf("rows %d to %d of %d", m.first+1, min(m.first+room, len(rows)), len(rows)))
	}
	if n := m.hidden(); n > 0 {
		parts = append(parts, fmt.Sprintf("→ %s", control.Count(n, "more column")))
	}
	if m.shift > 0 {
		parts = append(parts, fmt.Sprintf("← %s", control.Count(m.shift, "more column")))
	}
	if n := len(m.seen.Accelerators) - m.acceleratorsShown(); n > 0 {
		parts = append(parts, control.Count(n, "more accelerator"))
	}
	return faint.Styled(strings.Join(parts, "  "))
}

func (m *Model) footer() string {
	keys := "q quit  ? help  ⏎ details  s sort  r reverse  / filter  f freeze  c credits  p policy"
	switch {
	case m.confirm != nil:
		keys = "y yes  n no"
	case m.prompt != nil:
		keys = "⏎ accept  esc cancel  ^U erase"
	case m.choice != nil:
		keys = "⏎ choose  esc cancel  ↑ ↓ move"
	case m.page == detailsPage:
		keys = "q quit  ? help  esc list  ↑ ↓ scroll  f freeze  c credits  p policy"
	case m.page == helpPage:
		keys = "q quit  esc list  ↑ ↓ scroll"
	case ansi.StringWidth(keys) > m.width:
		keys = strings.ReplaceAll(keys, "  ", " ")
	}
	return faint.Styled(keys)
}

// pageLines returns all lines of the page of details or of help.
func (m *Model) pageLines() []string {
	if m.page == helpPage {
		return strings.Split(strings.TrimSpace(helpText), "\n")
	}
	return m.detailLines()
}

const helpText = `
↑ ↓ j k     select a domain
PgUp PgDn   half a screen
g G         first, last domain
← → h l     other columns
s           choose the column to sort by
r           reverse the order
/           filter by name or accelerator
f space     freeze the screen, and go on
⏎           details of the domain; back
c           change the domain's credits
p           change an accelerator's policy
?           this page
q ^C        quit

SHARE       part of the accelerator's recently
            used time
ENTITLED    part that the policy owes
ERROR       share less entitled
WAIT P50/99 waits of the domain's calls at
            the gate since it began
CALLS/S     calls that passed the gate
HISTORY     share, 2 s a character
SWAPPED     device memory that is evicted now
VCPU RUN    CPUs that the vCPUs used
STEAL       part of their time that the vCPUs
            waited for a CPU
BUSY        part of the time in which engines
            of the accelerator were held
TURN        domains that may submit work now`

// detailLines returns the page of one domain.
func (m *Model) detailLines() []string {
	d, ok := m.seen.domain(m.cursor)
	if !ok {
		return []string{"", fmt.Sprintf("domain %s has ended", clean(m.cursor))}
	}
	var r Row
	for _, r = range m.seen.Rows(m.seenPrev) {
		if r.Name == d.Name {
			break
		}
	}
	text := map[string]string{}
	for _, c := range m.columns {
		text[c.head] = clean(c.text(r))
	}
	lines := []string{"", bold.Styled(clean(d.Name)) + fmt.Sprintf(" on %s: %s, processes: %d", text["ACCELERATOR"], text["STATE"], d.Processes)}
	add := func(name string, parts ...string) {
		line := "  " + fit(name, 10, true)
		for i, part := range parts {
			if i > 0 && ansi.StringWidth(line)+2+ansi.StringWidth(part) > m.width {
				lines = append(lines, line)
				line = strings.Repeat(" ", 12)
			}
			line += "  " + part
		}
		lines = append(lines, line)
	}
	add("share", text["SHARE"], "entitled "+text["ENTITLED"], "error "+text["ERROR"], "credits "+text["CREDITS"])
	add("waits", "p50 "+text["WAIT P50"], "p99 "+text["WAIT P99"], text["CALLS/S"]+" calls/s")
	add("memory", memory(d.Memory, d.MemoryQuota), "host "+memory(d.HostMemory, d.HostQuota))
	add("swapped", text["SWAPPED"], "out "+size(float64(d.SwapOut)), "in "+size(float64(d.SwapIn)))
	if d.VCPUs > 0 {
		add("vCPUs", fmt.Sprint(d.VCPUs), "run "+text["VCPU RUN"], "steal "+text["STEAL"])
	}
	if m.opt.Objective != nil {
		add("objective", text["SLO"])
	}
	lines = append(lines, m.spentLines(d.Spent)...)
	lines = append(lines, m.sparkLines(r)...)
	if m.about.domain == d.Name && len(m.about.reasons) > 0 {
		lines = append(lines, "", bold.Styled("why"))
		for _, reason := range m.about.reasons {
			for i, l := range strings.Split(ansi.Wrap(clean(reason), max(m.width-4, 10), ""), "\n") {
				lines = append(lines, []string{"  ", "    "}[min(i, 1)]+l)
			}
		}
	}
	return lines
}

// spentLines shows where a domain's time went.
func (m *Model) spentLines(s control.Spent) []string {
	if s.Window == 0 {
		return nil
	}
	lines := []string{"", bold.Styled(fmt.Sprintf("where its time went, of the last %v", time.Duration(s.Window).Round(100*time.Millisecond)))}
	room := max(min(m.width-25, 50), 1)
	for _, part := range []struct {
		name string
		of   float64
	}{{"accelerator", s.Accelerator}, {"its turn", s.Turn}, {"its vCPUs", s.VCPU}, {"idle", s.Idle}} {
		n := min(max(int(part.of*float64(room)+0.5), 0), room)
		lines = append(lines, "  "+fit(part.name, 11, true)+" "+fit(percent(part.of), 7, false)+" "+graph.Styled(strings.Repeat("█", n)))
	}
	return lines
}

// sparkLines shows a domain's history: the daemon's samples, or those of this program.
func (m *Model) sparkLines(r Row) []string {
	samples, kept := m.domains[r.Name], m.about.domain == r.Name && len(m.about.past) > 0
	if kept {
		samples = m.about.past
	}
	room := max(min(m.width-23, 150), 1)
	lines := []string{"", bold.Styled(fmt.Sprintf("history, %v", time.Duration(room)*m.bucket()))}
	add := func(name, now string, figure func(control.Sample) float64, most float64) {
		lines = append(lines, "  "+fit(name, 9, true)+" "+fit(now, 9, false)+" "+graph.Styled(spark(samples, figure, m.seen.At, m.bucket(), room, most)))
	}
	add("share", percent(r.Share), shareOf, 1)
	if kept {
		add("wait p99", duration(float64(m.about.past[len(m.about.past)-1].WaitP99)), func(s control.Sample) float64 { return float64(s.WaitP99) }, 0)
	}
	rate := "-"
	if r.Rate != nil {
		rate = count(*r.Rate)
	}
	add("calls/s", rate, func(s control.Sample) float64 { return s.Calls }, 0)
	add("memory", size(float64(r.Memory)), func(s control.Sample) float64 { return float64(s.Memory) }, 0)
	return lines
}
