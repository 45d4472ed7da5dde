package xen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"time"

	"pegasus/callbuf/grant"
	wire "pegasus/callbuf/region"
	"pegasus/xenstore"
)

// offer is an agent's entry in XenStore: its control area, and the port of its event channel.
type offer struct {
	control grant.Ref
	port    grant.Port
}

// none reports that there is no agent: no page has the number 0.
func (o offer) none() bool { return o.control == 0 }

const (
	// lookEvery is the shortest interval between reads of XenStore, whatever the domU writes there; lookAnyway the
	// longest, without events.
	lookEvery  = 100 * time.Millisecond
	lookAnyway = 5 * time.Second
	// storeTime is how long XenStore may take to answer.
	storeTime = 10 * time.Second
)

// Watch implements hub.Memory: it follows the domU's entries in XenStore.
func (m *Memory) Watch(ctx context.Context, changed func()) error {
	soon, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	agent, err := m.store.Watch(soon, path.Join(m.dir(), wire.StoreDir))
	if err != nil {
		return err
	}
	ends, err := m.store.Watch(soon, xenstore.ReleaseDomain)
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			if m.look(ctx) {
				changed()
			}
			pause(ctx, lookEvery)
			select {
			case <-agent.Ready():
				agent.Take()
			case <-ends.Ready():
				ends.Take()
			case <-time.After(lookAnyway):
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

// dir returns the domU's directory in XenStore.
func (m *Memory) dir() string { return "/local/domain/" + strconv.Itoa(int(m.domU.ID)) }

// look reads XenStore once, and reports whether the offer changed. While XenStore doesn't answer, or lacks a domU
// that the hypervisor has, the last state stays.
func (m *Memory) look(ctx context.Context) (news bool) {
	over := ""
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	o, err := readOffer(ctx, m.store, path.Join(m.dir(), wire.StoreDir))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = m.store.Read(ctx, m.dir()); errors.Is(err, fs.ErrNotExist) {
			if m.lives() {
				return false
			}
			over, err = "the domU is gone", nil
		}
	}
	if err != nil {
		if text := err.Error(); !errors.Is(ctx.Err(), context.Canceled) && text != m.said {
			m.said = text
			m.log.Warn("read the domU's nodes in XenStore", "err", err)
		}
		return false
	}
	m.said = ""
	m.missed = 0
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != "" {
		return false // another domU has its number
	}
	news = o != m.offered || over != ""
	m.offered, m.over = o, over
	return news
}

// lives reports whether the hypervisor has the domU, which XenStore lacks.
func (m *Memory) lives() bool {
	if m.domU.Lives == nil {
		return false
	}
	lives, err := m.domU.Lives()
	if err != nil {
		m.log.Warn("domU missing from XenStore, and the hypervisor does not answer; treating it as gone", "err", err)
		return false
	}
	if m.missed++; lives && m.missed == 2 { // a single time also occurs when a domU ends
		m.log.Warn("domU missing from XenStore but known to the hypervisor; keeping last known state")
	}
	return lives
}

// readOffer reads an agent's entries. The agent may be writing them: a mix of two offers is harmless, because the
// write that completes it causes an event, and the entries are read again. If they are not an offer of our version, the
// result is an empty offer. fs.ErrNotExist means that the directory is missing, or incomplete.
func readOffer(ctx context.Context, c *xenstore.Client, dir string) (offer, error) {
	var texts [4]string
	for i, name := range [...]string{wire.StoreState, wire.StoreVersion, wire.StoreControl, wire.StorePort} {
		b, err := c.Read(ctx, path.Join(dir, name))
		if err != nil {
			return offer{}, err
		}
		texts[i] = string(b)
	}
	o, err := parseOffer(texts[0], texts[1], texts[2], texts[3])
	if err != nil {
		return offer{}, nil
	}
	return o, nil
}

// parseOffer parses an offer.
func parseOffer(state, version, control, port string) (o offer, err error) {
	if state != wire.StoreReady || version != wire.StoreVersion1 {
		return o, fmt.Errorf("an agent of version %q is %q", version, state)
	}
	ref, err := strconv.ParseUint(control, 10, 32)
	if err != nil || ref == 0 || ref > wire.MaxRef {
		return o, fmt.Errorf("a control area at page %q", control)
	}
	at, err := strconv.ParseUint(port, 10, 32)
	if err != nil {
		return o, fmt.Errorf("an event channel at port %q", port)
	}
	return offer{grant.Ref(ref), grant.Port(at)}, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
