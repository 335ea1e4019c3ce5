package stripesim

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newID makes an identifier in Stripe's style. With the same seed the same
// sequence of calls gives the same ids, and a restarted simulator goes on where
// it stopped. Called with mu held.
func (s *Sim) newID(prefix string, n int) string {
	s.st.ids++
	return prefix + letters(s.seed, s.st.ids, n)
}

// newRequestID numbers requests apart from objects: they do not survive a
// restart, so they must not move the ids that do.
func (s *Sim) newRequestID() string {
	return "req_" + letters(s.requestSeed, s.requests.Add(1), 14)
}

// letters spreads a counter over n letters (splitmix64, one word for every ten).
func letters(seed, counter uint64, n int) string {
	out := make([]byte, n)
	var word uint64
	for i := range out {
		if i%10 == 0 {
			word = mix(seed ^ mix(counter) ^ mix(uint64(i)+1))
		}
		hi, lo := bits.Mul64(word, uint64(len(alphabet)))
		out[i], word = alphabet[hi], lo
	}
	return string(out)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint64(b[:]) | 1
}
