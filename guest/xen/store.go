package xen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
	"pegasus/xenstore"
)

// storeTime is the timeout of XenStore requests.
const storeTime = 10 * time.Second

// rendezvous is the agent's published location in the XenStore.
type rendezvous struct {
	control grant.Ref  // of the control area's first page
	port    grant.Port // of the event channel
	domain  string     // this domain's number at the time of publication: pages and ports of another number are invalid
}

var (
	errNoRendezvous = errors.New("the XenStore knows nothing of this agent")
	errMoved        = fmt.Errorf("%w any more: the domU was restored or migrated, or somebody has removed it there", errNoRendezvous)
)

func openStore() (*xenstore.Client, error) {
	ctx, done := context.WithTimeout(context.Background(), storeTime)
	defer done()
	return xenstore.DialAgain(ctx, xenstore.Local())
}

// publish writes the agent's rendezvous to the XenStore for Dom0, in one transaction.
func publish(c *xenstore.Client, r *rendezvous) error {
	ctx, done := context.WithTimeout(context.Background(), storeTime)
	defer done()
	domain, err := c.Read(ctx, "domid")
	if err != nil {
		return err
	}
	r.domain = string(domain)
	err = c.Update(ctx, func(tx *xenstore.Tx) error {
		for _, node := range []struct{ name, value string }{
			{region.StoreVersion, region.StoreVersion1},
			{region.StoreControl, strconv.FormatUint(uint64(r.control), 10)},
			{region.StorePort, strconv.FormatUint(uint64(r.port), 10)},
			{region.StoreState, region.StoreReady},
		} {
			if err := tx.Write(ctx, region.StoreDir+"/"+node.name, []byte(node.value)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tell Dom0 where the control area is: %w", err)
	}
	return nil
}

// read returns the last published rendezvous.
func read(ctx context.Context, c *xenstore.Client) (r rendezvous, err error) {
	var texts [4]string
	for i, name := range []string{region.StoreVersion, region.StoreState, region.StoreControl, region.StorePort} {
		b, err := c.Read(ctx, region.StoreDir+"/"+name)
		if errors.Is(err, fs.ErrNotExist) {
			return r, errNoRendezvous
		}
		if err != nil {
			return r, err
		}
		texts[i] = string(b)
	}
	domain, err := c.Read(ctx, "domid")
	if err != nil {
		return r, err
	}
	control, err1 := strconv.ParseUint(texts[2], 10, 32)
	port, err2 := strconv.ParseUint(texts[3], 10, 32)
	if texts[0] != region.StoreVersion1 || texts[1] != region.StoreReady || err1 != nil || err2 != nil {
		return r, errNoRendezvous
	}
	return rendezvous{grant.Ref(control), grant.Port(port), string(domain)}, nil
}

// withdraw removes the published rendezvous.
func withdraw(c *xenstore.Client) error {
	ctx, done := context.WithTimeout(context.Background(), storeTime)
	defer done()
	return c.Remove(ctx, region.StoreDir)
}

// Withdraw removes an agent's nodes from the XenStore.
func Withdraw() error {
	c, err := openStore()
	if err != nil {
		return err
	}
	defer c.Close()
	return withdraw(c)
}

// watch blocks until the published rendezvous differs from was, and returns the reason; or until ctx ends.
//
// After a domU was restored, or migrated from another host, its kernel sets its watches again, and each of them fires
// an event then.
func watch(ctx context.Context, c *xenstore.Client, w *xenstore.Watch, was rendezvous) error {
	for {
		if _, err := w.Next(ctx); err != nil {
			return err
		}
		is, err := read(ctx, c)
		switch {
		case errors.Is(err, errNoRendezvous), err == nil && is != was:
			return errMoved
		case errors.Is(err, xenstore.ErrLost):
			// An event follows when the XenStore is back.
		case err != nil:
			return err
		}
	}
}
