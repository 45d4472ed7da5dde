package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"pegasus/backend/control"
)

// Model is the state of the screen. Update returns the next one; the states of one program share the samples.
type Model struct {
	daemon Daemon
	opt    Options

	width, height int

	last, previous *Poll // the latest polls
	seen, seenPrev *Poll // those on the screen; other than the latest while it is frozen
	frozen         bool
	domains        history // samples of the domains
	busy           history // samples of the accelerators
	gone           string  // the reason why the last poll failed; empty: it did not
	message        string  // the result of the last command

	table

	page   page
	scroll int     // first line of the page on the screen
	about  details // of the domain on the page of details

	prompt  *prompt
	choice  *choice
	confirm *confirm
}

// table is the arrangement of the list of domains.
type table struct {
	columns []column
	sort    string // head of the column
	reverse bool
	filter  string
	cursor  string // name of the selected domain
	first   int    // number of the first row on the screen
	shift   int    // columns that are left out behind the first
}

// page is one of the screens.
type page int

const (
	listPage page = iota
	detailsPage
	helpPage
)

// details is what the page of details has beyond a poll.
type details struct {
	domain  string
	reasons []string
	past    []control.Sample // of the daemon; nil: it has none
}

// prompt is a line that the user types.
type prompt struct {
	label, text string
	changed     func(m *Model, text string)         // after each key; may be nil
	done        func(m *Model, text string) tea.Cmd // after Enter
}

// choice is a list of which the user selects an item.
type choice struct {
	title string
	items []string
	at    int
	done  func(m *Model, item string) tea.Cmd
}

// confirm is a change that waits for the user's consent.
type confirm struct {
	text string
	do   tea.Cmd
}

// Messages of commands.
type (
	pollMsg struct {
		poll *Poll
		err  error
	}
	tickMsg    struct{}
	pastMsg    []control.DomainHistory
	detailsMsg struct {
		details
		err error
	}
	changedMsg  struct{ text string }
	policiesMsg struct {
		accelerator string
		names       []string
		err         error
	}
)

// New returns the state before the first poll.
func New(daemon Daemon, opt Options) Model {
	return Model{daemon: daemon, opt: opt, domains: history{}, busy: history{}, table: table{columns: columns(opt.Objective), sort: "SHARE"}}
}

// Init returns the first commands.
func (m Model) Init() tea.Cmd { return tea.Batch(m.poll(), m.past()) }

// poll returns the command of one poll.
func (m Model) poll() tea.Cmd {
	return func() tea.Msg {
		p, err := Take(context.Background(), m.daemon)
		return pollMsg{p, err}
	}
}

// past returns the command for the samples that the daemon has.
func (m Model) past() tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		h, err := m.daemon.History(ctx, "")
		if err != nil {
			return nil // an older daemon has none: sparklines begin with the first poll
		}
		return pastMsg(h.Domains)
	}
}

// describe returns the command for the details of a domain.
func (m Model) describe(name string) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		d := details{domain: name}
		all, err := m.daemon.Explain(ctx, name)
		if err == nil && len(all) > 0 {
			d.reasons = all[0].Lines
		}
		if h, err := m.daemon.History(ctx, name); err == nil && len(h.Domains) == 1 {
			d.past = h.Domains[0].Samples
		}
		return detailsMsg{d, err}
	}
}

// Update returns the next state, and a command or nil.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case pollMsg:
		cmd = m.polled(msg)
	case tickMsg:
		cmd = m.poll()
		if m.page == detailsPage && !m.frozen {
			cmd = tea.Batch(cmd, m.describe(m.cursor))
		}
	case pastMsg:
		for _, d := range msg {
			m.domains.before(d.Domain, d.Samples)
		}
	case detailsMsg:
		if msg.err == nil && msg.domain == m.cursor && !(m.frozen && m.about.domain == msg.domain) {
			m.about = msg.details
		}
	case policiesMsg:
		m.choosePolicy(msg)
	case changedMsg:
		m.message = msg.text
	case tea.PasteMsg:
		if m.prompt != nil {
			m.typed(clean(msg.Content))
		}
	case tea.KeyPressMsg:
		cmd = m.key(msg)
	}
	m.follow()
	return m, cmd
}

// polled takes up the answer of a poll.
func (m *Model) polled(msg pollMsg) tea.Cmd {
	next := tea.Tick(m.opt.Interval, func(time.Time) tea.Msg { return tickMsg{} })
	if msg.err != nil {
		m.gone = trouble(msg.err)
		return next
	}
	if m.gone != "" {
		m.gone, m.message = "", "the daemon is back"
	}
	m.previous, m.last = m.last, msg.poll
	at := msg.poll.At.UnixNano()
	for _, r := range msg.poll.Rows(m.previous) {
		s := control.Sample{At: at, Share: r.Share, Memory: int64(r.Memory)}
		if r.Rate != nil {
			s.Calls = *r.Rate
		}
		m.domains.add(r.Name, s)
	}
	for _, a := range msg.poll.Accelerators {
		m.busy.add(a.Name, control.Sample{At: at, Share: a.Busy})
	}
	ago := at - int64(maxSamples)*int64(max(m.opt.Interval, bucketTime))
	m.domains.keep(ago)
	m.busy.keep(ago)
	if !m.frozen {
		m.seen, m.seenPrev = m.last, m.previous
	}
	return next
}

// trouble describes the error of a poll.
func trouble(err error) string {
	var refused *control.Error
	switch {
	case errors.As(err, &refused):
		return "the daemon refuses: " + refused.Message
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "the daemon does not answer; trying again"
	default:
		return "the daemon is gone; trying again"
	}
}

// rows returns the domains on the screen in their order.
func (m *Model) rows() []Row {
	if m.seen == nil {
		return nil
	}
	for _, c := range m.columns {
		if c.head == m.sort {
			return arrange(m.seen.Rows(m.seenPrev), c, m.reverse, m.filter)
		}
	}
	return nil
}

// arrange returns the rows whose name or accelerator contains the filter, ordered by a column and then by name.
func arrange(rows []Row, by column, reverse bool, filter string) []Row {
	filter = strings.ToLower(filter)
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		return !strings.Contains(strings.ToLower(r.Name), filter) && !strings.Contains(strings.ToLower(r.Accelerator), filter)
	})
	slices.SortFunc(rows, func(a, b Row) int {
		n := by.order(a, b)
		if reverse {
			n = -n
		}
		if n == 0 {
			n = strings.Compare(a.Name, b.Name)
		}
		return n
	})
	return rows
}

// follow keeps the selection on a row, and that row on the screen.
func (m *Model) follow() {
	if m.page == detailsPage {
		return // a domain that has gone stays on the page
	}
	rows := m.rows()
	if len(rows) == 0 {
		m.first = 0
		return
	}
	at := m.at(rows)
	m.cursor = rows[at].Name
	room := max(m.bodyHeight(), 1)
	m.first = min(max(m.first, at-room+1, 0), at, max(len(rows)-room, 0))
}

// at returns the number of the selected row; 0 if there is none.
func (m *Model) at(rows []Row) int {
	return max(0, slices.IndexFunc(rows, func(r Row) bool { return r.Name == m.cursor }))
}

// move moves the selection, or scrolls a page.
func (m *Model) move(by int) {
	if m.page != listPage {
		m.scroll = max(0, min(m.scroll+by, len(m.pageLines())-m.pageHeight()))
		return
	}
	if rows := m.rows(); len(rows) > 0 {
		m.cursor = rows[max(0, min(m.at(rows)+by, len(rows)-1))].Name
	}
}

// show opens a page.
func (m *Model) show(p page) { m.page, m.scroll = p, 0 }

// key carries out a key.
func (m *Model) key(k tea.KeyPressMsg) tea.Cmd {
	if k.String() == "ctrl+c" {
		return tea.Quit
	}
	m.message = ""
	switch {
	case m.confirm != nil:
		c := m.confirm
		m.confirm = nil
		if k.String() == "y" {
			return c.do
		}
		m.message = "nothing was changed"
		return nil
	case m.prompt != nil:
		return m.promptKey(k)
	case m.choice != nil:
		return m.choiceKey(k)
	}
	half := max(m.pageHeight()/2, 1)
	switch k.String() {
	case "q":
		return tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+u":
		m.move(-half)
	case "pgdown", "ctrl+d":
		m.move(half)
	case "home", "g":
		m.move(-1 << 30)
	case "end", "G":
		m.move(1 << 30)
	case "left", "h":
		m.shift = max(m.shift-1, 0)
	case "right", "l":
		if m.hidden() > 0 {
			m.shift++
		}
	case "f", "space":
		m.frozen = !m.frozen
		if !m.frozen {
			m.seen, m.seenPrev = m.last, m.previous
		}
	case "?":
		m.show(helpPage)
	case "esc":
		m.show(listPage)
	case "enter":
		if m.page != listPage {
			m.show(listPage)
		} else if m.cursor != "" && len(m.rows()) > 0 {
			m.show(detailsPage)
			m.about = details{domain: m.cursor}
			return m.describe(m.cursor)
		}
	case "c":
		m.askCredits()
	case "p":
		return m.askPolicy()
	}
	if m.page == listPage {
		m.listKey(k)
	}
	return nil
}

// listKey carries out a key that only the list has.
func (m *Model) listKey(k tea.KeyPressMsg) {
	switch k.String() {
	case "r":
		m.reverse = !m.reverse
	case "/":
		old := m.filter
		m.prompt = &prompt{label: "filter", text: old,
			changed: func(m *Model, text string) { m.filter = text },
			done:    func(m *Model, text string) tea.Cmd { m.filter = text; return nil }}
	case "s":
		c := &choice{title: "sort by", done: func(m *Model, item string) tea.Cmd { m.sort = item; return nil }}
		for _, column := range m.columns {
			if column.order == nil {
				continue
			}
			if column.head == m.sort {
				c.at = len(c.items)
			}
			c.items = append(c.items, column.head)
		}
		m.choice = c
	}
}

// maxText bounds a prompt's text, in bytes.
const maxText = 64

// typed adds text to the prompt.
func (m *Model) typed(text string) {
	p := *m.prompt
	if len(p.text)+len(text) <= maxText {
		p.text += text
	}
	m.edit(p)
}

// edit takes up a changed prompt.
func (m *Model) edit(p prompt) {
	m.prompt = &p
	if p.changed != nil {
		p.changed(m, p.text)
	}
}

func (m *Model) promptKey(k tea.KeyPressMsg) tea.Cmd {
	p := *m.prompt
	switch k.String() {
	case "enter":
		m.prompt = nil
		return p.done(m, strings.TrimSpace(p.text))
	case "esc":
		p.text = ""
		m.edit(p)
		m.prompt = nil
	case "backspace":
		if r := []rune(p.text); len(r) > 0 {
			p.text = string(r[:len(r)-1])
		}
		m.edit(p)
	case "ctrl+u":
		p.text = ""
		m.edit(p)
	default:
		m.typed(k.Text)
	}
	return nil
}

func (m *Model) choiceKey(k tea.KeyPressMsg) tea.Cmd {
	c := *m.choice
	m.choice = &c
	switch k.String() {
	case "up", "k":
		c.at = max(c.at-1, 0)
	case "down", "j":
		c.at = min(c.at+1, len(c.items)-1)
	case "esc", "q":
		m.choice = nil
	case "enter":
		m.choice = nil
		return c.done(m, c.items[c.at])
	}
	return nil
}

// askCredits begins a change of the selected domain's credits.
func (m *Model) askCredits() {
	name := m.cursor
	if _, ok := m.last.domain(name); !ok {
		m.message = "no domain is selected"
		return
	}
	m.prompt = &prompt{label: "new credits of " + name, done: func(m *Model, text string) tea.Cmd {
		d, ok := m.last.domain(name)
		old := fmt.Sprint(d.Credits)
		switch {
		case !ok:
			m.message = fmt.Sprintf("domain %s has ended", name)
		case text == "" || text == old:
			m.message = fmt.Sprintf("credits of %s stay %s", name, old)
		default:
			m.confirm = &confirm{fmt.Sprintf("change credits of %s from %s to %s?", name, old, text), m.change(func(ctx context.Context) (string, error) {
				d, err := m.daemon.Set(ctx, control.SetParams{Domain: name, Settings: map[string]string{"credits": text}})
				return fmt.Sprintf("credits of %s are %d", name, d.Credits), err
			})}
		}
		return nil
	}}
}

// change returns the command of a change.
func (m *Model) change(do func(ctx context.Context) (string, error)) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		text, err := do(ctx)
		if err != nil {
			text = "not changed: " + err.Error()
		}
		return changedMsg{text}
	}
}

// askPolicy begins a change of a policy: of the only accelerator, or of a chosen one.
func (m *Model) askPolicy() tea.Cmd {
	if m.last == nil || len(m.last.Accelerators) == 0 {
		m.message = "there is no accelerator"
		return nil
	}
	if len(m.last.Accelerators) == 1 {
		return m.policies(m.last.Accelerators[0].Name)
	}
	c := &choice{title: "policy of", done: func(m *Model, item string) tea.Cmd { return m.policies(item) }}
	d, _ := m.last.domain(m.cursor)
	for i, a := range m.last.Accelerators {
		if a.Name == d.Accelerator {
			c.at = i
		}
		c.items = append(c.items, a.Name)
	}
	m.choice = c
	return nil
}

// policies returns the command for the policies that there are.
func (m *Model) policies(accelerator string) tea.Cmd {
	daemon := m.daemon
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		s, err := daemon.Status(ctx)
		return policiesMsg{accelerator, s.Policies, err}
	}
}

// choosePolicy continues a change of a policy with the list of policies.
func (m *Model) choosePolicy(msg policiesMsg) {
	if msg.err != nil {
		m.message = "list the policies: " + msg.err.Error()
		return
	}
	if m.prompt != nil || m.confirm != nil || m.choice != nil || len(msg.names) == 0 {
		return // the user has gone on
	}
	old := m.policyOf(msg.accelerator)
	c := &choice{title: "policy of " + msg.accelerator, items: msg.names, at: max(0, slices.Index(msg.names, old))}
	c.done = func(m *Model, item string) tea.Cmd {
		old := m.policyOf(msg.accelerator)
		if item == old {
			m.message = fmt.Sprintf("policy of %s stays %s", msg.accelerator, old)
			return nil
		}
		m.confirm = &confirm{fmt.Sprintf("change policy of %s from %s to %s?", msg.accelerator, old, item), m.change(func(ctx context.Context) (string, error) {
			_, err := m.daemon.SwitchPolicy(ctx, control.PolicyParams{Accelerator: msg.accelerator, Name: item})
			return fmt.Sprintf("policy of %s is %s", msg.accelerator, item), err
		})}
		return nil
	}
	m.choice = c
}

func (m *Model) policyOf(accelerator string) string {
	for _, a := range m.last.Accelerators {
		if a.Name == accelerator {
			return a.Policy
		}
	}
	return "none"
}
