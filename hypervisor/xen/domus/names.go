package domus

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"time"

	"pegasus/callbuf/region"
	"pegasus/xenstore"
)

const (
	// domainsDir has a directory for each domain, by number. A watch on it would report every write of a domU below
	// its own directory, so only the names in it are watched, which only Dom0 writes.
	domainsDir = "/local/domain"
	// readTime bounds a read of all names.
	readTime = 5 * time.Second
	// settleTime is the time in which all parts of a change arrive.
	settleTime = 20 * time.Millisecond
	// dialAgain is the pause before XenStore is dialled again.
	dialAgain = time.Second
)

// followNames sends all domains' names, at first and whenever one may have changed, until ctx ends.
func (d *DomUs) followNames(ctx context.Context, updates chan<- map[uint16]string) {
	store := complaint{log: d.Log, what: "XenStore doesn't answer: domUs keep the names that they had, and new ones aren't seen", over: "XenStore answers again"}
	for ctx.Err() == nil {
		err := d.followStore(ctx, updates, &store)
		if ctx.Err() == nil {
			store.about(err)
		}
		pause(ctx, dialAgain)
	}
}

// followStore does the work of followNames over one client.
func (d *DomUs) followStore(ctx context.Context, updates chan<- map[uint16]string, store *complaint) error {
	soon, cancel := context.WithTimeout(ctx, readTime)
	c, err := xenstore.DialAgain(soon, d.Dial)
	cancel()
	if err != nil {
		return err
	}
	defer c.Close()
	n := &naming{client: c, changed: make(chan struct{}, 1), watched: map[uint16]*xenstore.Watch{}}
	for ctx.Err() == nil {
		err := n.read(ctx, d.attached())
		if ctx.Err() != nil {
			break
		}
		if store.about(err); err == nil {
			d.setHere(n.here)
			select {
			case updates <- n.names:
			case <-ctx.Done():
			}
		}
		select {
		case <-n.changed:
			pause(ctx, settleTime)
		case <-time.After(readEvery):
		case <-ctx.Done():
		case <-c.Done():
			return c.Err()
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// attached returns the numbers of the attached domUs.
func (d *DomUs) attached() map[uint16]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := map[uint16]bool{}
	for _, m := range d.reported {
		ids[m.Xen] = m.Xen != 0
	}
	return ids
}

func (d *DomUs) setHere(here map[uint16]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.here = here
}

// naming reads and watches names.
type naming struct {
	client  *xenstore.Client
	changed chan struct{}
	general []*xenstore.Watch          // watches of domains that come and go
	watched map[uint16]*xenstore.Watch // watches of the domains' names

	names map[uint16]string
	here  map[uint16]bool
}

// read reads all names, and for the domains in agents whether their agent is present.
func (n *naming) read(ctx context.Context, agents map[uint16]bool) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	for len(n.general) < len(events) {
		w, err := n.watch(ctx, events[len(n.general)])
		if err != nil {
			return err
		}
		n.general = append(n.general, w)
	}
	names, err := Names(ctx, n.client)
	if err != nil {
		return err
	}
	here := map[uint16]bool{}
	for id := range names {
		if n.watched[id] == nil {
			if n.watched[id], err = n.watch(ctx, namePath(id)); err != nil {
				delete(n.watched, id)
				return err
			}
		}
		if agents[id] {
			here[id] = HasAgent(ctx, n.client, id)
		}
	}
	for id, w := range n.watched {
		if _, there := names[id]; !there {
			w.Close(ctx)
			delete(n.watched, id)
		}
	}
	n.names, n.here = names, here
	return nil
}

var events = [...]string{xenstore.IntroduceDomain, xenstore.ReleaseDomain}

// watch watches a path and signals changed at each event.
func (n *naming) watch(ctx context.Context, path string) (*xenstore.Watch, error) {
	w, err := n.client.Watch(ctx, path)
	if err != nil {
		return nil, err
	}
	go func() { // it ends with the watch, and so with the client
		for {
			if _, err := w.Next(context.Background()); err != nil {
				return
			}
			select {
			case n.changed <- struct{}{}:
			default:
			}
		}
	}()
	return w, nil
}

// HasAgent reports whether a domU's agent has announced its presence.
func HasAgent(ctx context.Context, c *xenstore.Client, id uint16) bool {
	text, err := c.Read(ctx, dirOf(id)+"/"+region.StoreDir+"/"+region.StoreState)
	return err == nil && string(text) == region.StoreReady
}

func dirOf(id uint16) string { return domainsDir + "/" + strconv.Itoa(int(id)) }

func namePath(id uint16) string { return dirOf(id) + "/name" }

// Names returns the names of all domains in XenStore, except Dom0's.
func Names(ctx context.Context, c *xenstore.Client) (map[uint16]string, error) {
	ids, err := c.List(ctx, domainsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := map[uint16]string{}
	for _, text := range ids {
		id, err := strconv.ParseUint(text, 10, 16)
		if err != nil || id == 0 {
			continue
		}
		name, err := c.Read(ctx, namePath(uint16(id)))
		if errors.Is(err, fs.ErrNotExist) { // the domain has just ended, or is just being created
			continue
		}
		if err != nil {
			return nil, err
		}
		names[uint16(id)] = string(name)
	}
	return names, nil
}
