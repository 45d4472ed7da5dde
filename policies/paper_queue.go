package policies

// publish makes a queue lend requests as published: it keeps no accounts, a lease lasts until its requests have ended,
// and a reserve also limits a domain that is alone.
func (q *queue) publish() {
	q.books = nil
	q.limits.strict, q.limits.most, q.limits.patience = true, 0, 0
}
