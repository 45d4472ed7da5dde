package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/hypervisor"
)

// lendTime is how long a machine may take to provide a segment and clear it.
const lendTime = 30 * time.Second

// lender is a hub that connects for a process of its virtual machine.
type lender struct{ *connection }

// newLender accepts root and the daemon's own user. Other users could lend memory, too, without harm to others, but
// have no reason to.
func newLender(n *connection) (*lender, error) {
	n.process.Close()
	n.process = nil
	if n.uid != 0 && n.uid != os.Geteuid() {
		err := fmt.Errorf("user %d may not lend memory for a process of a virtual machine: root may", n.uid)
		n.Refuse(resultNotPermitted, err.Error())
		return nil, err
	}
	n.pid = 0 // the PID is the hub's, not the process's
	return &lender{n}, nil
}

// resultNotPermitted is CUDA_ERROR_NOT_PERMITTED.
const resultNotPermitted = 800

// MostBytes returns the hub's bound of a segment, from the machine's memory.
func (l *lender) MostBytes() uint64 { return l.hello.MostBytes }

func (l *lender) Lend(t hypervisor.Terms) (*os.File, hypervisor.Loan, error) {
	l.conn.SetDeadline(time.Now().Add(lendTime))
	defer l.conn.SetDeadline(time.Time{})
	b, err := json.Marshal(t)
	if err == nil {
		_, err = l.conn.Write(b)
	}
	if err != nil {
		return nil, hypervisor.Loan{}, fmt.Errorf("request memory: %w", err)
	}
	f, loan, err := l.receiveLoan()
	if err != nil {
		return nil, loan, fmt.Errorf("the machine lends no memory: %w", err)
	}
	if err := checkLoan(f, t, loan); err != nil {
		f.Close()
		return nil, loan, fmt.Errorf("the machine's memory: %w", err)
	}
	return f, loan, nil
}

func (l *lender) receiveLoan() (*os.File, hypervisor.Loan, error) {
	var loan hypervisor.Loan
	b, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := l.conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, loan, err
	}
	if n == 0 {
		return nil, loan, errSilent
	}
	if err := json.Unmarshal(b[:n], &loan); err != nil {
		return nil, loan, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, loan, err
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			unix.CloseOnExec(fds[0])
			return os.NewFile(uintptr(fds[0]), "region"), loan, nil
		}
	}
	return nil, loan, errors.New("no file came with it")
}

func checkLoan(f *os.File, t hypervisor.Terms, loan hypervisor.Loan) error {
	layout, err := t.Geometry.Layout()
	if err != nil {
		return err
	}
	return loan.Parts.CheckFile(layout.SegmentBytes, f)
}

var _ hypervisor.Lender = (*lender)(nil)

// speaksForAnother reports whether a Hello is a hub's.
func speaksForAnother(h callbuf.Hello) bool { return h.Features&callbuf.FeatureApart != 0 }
