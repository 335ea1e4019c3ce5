package protocol

// table finds the number of a state by its hash. Of a state only 64 bits are kept: among ten million states the
// probability that any two of them are taken for one is less than one in a hundred thousand.
type table struct {
	hashes []uint64 // 0: empty
	ids    []uint32
	used   int
}

func (t *table) get(hash uint64) (uint32, bool) {
	if len(t.hashes) == 0 {
		return 0, false
	}
	at := t.slot(hash)
	return t.ids[at], t.hashes[at] != 0
}

// slot is where a hash is, or would be.
func (t *table) slot(hash uint64) uint64 {
	mask := uint64(len(t.hashes) - 1)
	at := hash & mask
	for t.hashes[at] != 0 && t.hashes[at] != nonzero(hash) {
		at = (at + 1) & mask
	}
	return at
}

func nonzero(hash uint64) uint64 { return max(hash, 1) }

func (t *table) put(hash uint64, id uint32) {
	if 3*t.used >= 2*len(t.hashes) {
		t.grow()
	}
	at := t.slot(hash)
	t.hashes[at], t.ids[at] = nonzero(hash), id
	t.used++
}

func (t *table) grow() {
	old := *t
	size := max(1<<12, 2*len(old.hashes))
	t.hashes, t.ids = make([]uint64, size), make([]uint32, size)
	for i, hash := range old.hashes {
		if hash != 0 {
			at := t.slot(hash)
			t.hashes[at], t.ids[at] = hash, old.ids[i]
		}
	}
}
