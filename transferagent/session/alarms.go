package session

import (
	"container/heap"
	"time"
)

// alarmKey names what has a deadline: a transfer, an early message or a peer.
type alarmKey struct {
	transfer string
	early    bool
	peer     Peer
}

type alarm struct {
	at    time.Time
	order uint64 // breaks ties by age, so that runs repeat exactly
	key   alarmKey
}

// alarms holds at most one time for each key. Replaced ones stay in the heap until
// they surface or outnumber the rest.
type alarms struct {
	set   map[alarmKey]alarm
	heap  alarmHeap
	order uint64
}

// put sets the alarm of key; a zero time drops it.
func (a *alarms) put(key alarmKey, at time.Time) {
	if at.IsZero() {
		a.drop(key)
		return
	}
	if old, ok := a.set[key]; ok && old.at.Equal(at) {
		return
	}
	if a.set == nil {
		a.set = map[alarmKey]alarm{}
	}
	a.order++
	entry := alarm{at: at, order: a.order, key: key}
	a.set[key] = entry
	heap.Push(&a.heap, entry)
	a.compact()
}

func (a *alarms) drop(key alarmKey) {
	delete(a.set, key)
	a.compact()
}

// next is the earliest alarm.
func (a *alarms) next() (time.Time, bool) {
	a.surface()
	if len(a.heap) == 0 {
		return time.Time{}, false
	}
	return a.heap[0].at, true
}

// due takes the earliest alarm that is not after now.
func (a *alarms) due(now time.Time) (alarmKey, bool) {
	a.surface()
	if len(a.heap) == 0 || a.heap[0].at.After(now) {
		return alarmKey{}, false
	}
	key := a.heap[0].key
	heap.Pop(&a.heap)
	delete(a.set, key)
	return key, true
}

// surface drops replaced alarms from the top.
func (a *alarms) surface() {
	for len(a.heap) > 0 && a.set[a.heap[0].key].order != a.heap[0].order {
		heap.Pop(&a.heap)
	}
}

func (a *alarms) compact() {
	if len(a.heap) <= 2*len(a.set)+64 {
		return
	}
	a.heap = a.heap[:0]
	for _, entry := range a.set {
		a.heap = append(a.heap, entry)
	}
	heap.Init(&a.heap)
}

type alarmHeap []alarm

func (h alarmHeap) Len() int { return len(h) }
func (h alarmHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].order < h[j].order
	}
	return h[i].at.Before(h[j].at)
}
func (h alarmHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any)   { *h = append(*h, x.(alarm)) }
func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	top := (*h)[last]
	*h = (*h)[:last]
	return top
}
