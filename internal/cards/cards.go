// Package cards recognizes card numbers in text, so that one that is sent by mistake is
// refused before it is stored, logged or passed on. A service that keeps a single card
// number is in the scope of PCI DSS.
//
// Luhn's check alone would not do: of all numbers one in ten passes it, also of the
// timestamps, article numbers and ids that an honest client sends. What is refused looks
// like a card in each of four ways: its length and first digits are those of a brand,
// Luhn's check passes, its digits stand together or in the groups that are printed on
// cards, and they are no part of an identifier that mixes letters and digits.
package cards

import (
	"strconv"
	"strings"
)

// NumberIn reports whether a text contains what looks like the number of a card. It does
// not see one whose digits are in an unusual script, in other groups, or in several fields.
func NumberIn(text string) bool {
	if !Possible(text) {
		return false
	}
	var (
		groups  []string // of digits, with no more than a separator between them
		between int      // bytes since the last group
	)
	for i := 0; i < len(text); {
		if !alphanumeric(text[i]) {
			size := separator(text[i:])
			if between += size; size == 0 || between > separatorsMax {
				groups = nil
			}
			i += max(size, 1)
			continue
		}
		word := wordOf(text[i:])
		digits, before, after := onlyDigits(word)
		if i > 0 && text[i-1] == '+' { // A telephone number has up to fifteen digits.
			digits = ""
		}
		if digits == "" || before {
			groups = nil
		}
		groups = append(groups, digits)
		for from := max(0, len(groups)-groupsMax); from < len(groups); from++ {
			if isCard(groups[from:]) {
				return true
			}
		}
		if digits == "" || after {
			groups = nil
		}
		between = 0
		i += len(word)
	}
	return false
}

const (
	lengthMin     = 13
	lengthMax     = 19
	groupsMax     = 5 // 4242 4242 4242 4242 424
	separatorsMax = 3 // bytes between two groups, such as " - "
)

// Possible is a fast check for texts of which most contain no long number: whatever
// contains a card number has as many digits with no letter and no quote between them.
func Possible[T string | []byte](text T) bool {
	n := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			if n++; n >= lengthMin {
				return true
			}
		case c == '\\': // of JSON: any character may stand behind it
			return true
		case c == '"' || c|0x20 >= 'a' && c|0x20 <= 'z':
			n = 0
		}
	}
	return false
}

// separators stand between groups: what people type, and what word processors make of it.
var separators = []string{" ", "-", ".", "_", "/", "\u00a0", "\u2009", "\u202f", "\u2010", "\u2011", "\u2012", "\u2013"}

// separator is the length of the separator that the text begins with, or 0.
func separator(text string) int {
	for _, s := range separators {
		if strings.HasPrefix(text, s) {
			return len(s)
		}
	}
	return 0
}

func alphanumeric(b byte) bool { return digit(b) || b|0x20 >= 'a' && b|0x20 <= 'z' }

func digit(b byte) bool { return b >= '0' && b <= '9' }

func wordOf(text string) string {
	n := 0
	for n < len(text) && alphanumeric(text[n]) {
		n++
	}
	return text[:n]
}

// onlyDigits returns the digits of a word that has them in one place, and whether letters
// stand before or after them: "card4242424242424242" is a card. A word with digits in
// several places is an identifier, such as a hash, and has none.
func onlyDigits(word string) (digits string, before, after bool) {
	start := 0
	for start < len(word) && !digit(word[start]) {
		start++
	}
	end := start
	for end < len(word) && digit(word[end]) {
		end++
	}
	for _, b := range []byte(word[end:]) {
		if digit(b) {
			return "", false, false
		}
	}
	return word[start:end], start > 0, end < len(word)
}

// layouts are the groups in which the numbers of cards are printed and typed.
var layouts = []string{
	"4-4-4-4", "4-4-4-4-3", // most brands
	"4-6-5", "4-6-4", // American Express, Diners Club
	"6-13", "4-3-3-3", // UnionPay, old Visa cards
}

func isCard(groups []string) bool {
	if len(groups) == 1 {
		return IsNumber(groups[0])
	}
	var layout, number strings.Builder
	total := 0
	for i, g := range groups {
		total += len(g)
		if len(g) > lengthMin || total > lengthMax {
			return false
		}
		if i > 0 {
			layout.WriteByte('-')
		}
		layout.WriteString(strconv.Itoa(len(g)))
		number.WriteString(g)
	}
	for _, l := range layouts {
		if l == layout.String() {
			return IsNumber(number.String())
		}
	}
	return false
}

// brands are the numbers that are issued: first digits from..to, and how many there are.
var brands = []struct {
	name     string
	from, to string
	lengths  []int
}{
	{"Visa", "4", "4", []int{13, 16, 19}},
	{"Mastercard", "51", "55", []int{16}},
	{"Mastercard", "2221", "2720", []int{16}},
	{"American Express", "34", "34", []int{15}},
	{"American Express", "37", "37", []int{15}},
	{"Discover", "6011", "6011", []int{16, 19}},
	{"Discover", "644", "649", []int{16, 19}},
	{"Discover", "65", "65", []int{16, 19}},
	{"Diners Club", "300", "305", []int{14, 16, 19}},
	{"Diners Club", "3095", "3095", []int{14, 16, 19}},
	{"Diners Club", "36", "36", []int{14, 16, 19}},
	{"Diners Club", "38", "39", []int{14, 16, 19}},
	{"JCB", "3528", "3589", []int{16}}, // Numbers of 19 digits are possible, but some networks' ids begin so.
	{"UnionPay", "62", "62", []int{16, 17, 18, 19}},
	{"UnionPay", "81", "81", []int{16, 17, 18, 19}},
	{"Maestro", "5018", "5018", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "5020", "5020", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "5038", "5038", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "5893", "5893", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "6304", "6304", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "6759", "6763", []int{13, 14, 15, 16, 17, 18, 19}},
}

// IsNumber reports whether digits, and nothing else, are the number of a card.
func IsNumber(digits string) bool {
	if len(digits) < lengthMin || len(digits) > lengthMax || !luhn(digits) || isGTIN(digits) {
		return false
	}
	for _, b := range brands {
		if first := digits[:len(b.from)]; first < b.from || first > b.to {
			continue
		}
		for _, n := range b.lengths {
			if n == len(digits) {
				return true
			}
		}
	}
	return false
}

func luhn(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// isGTIN reports whether 13 or 14 digits are an article number. Those of German articles
// begin with 4, as Visa's cards do, and no more than one card of that length in ten has
// the check digit of an article; cards of 13 digits are not issued any more.
func isGTIN(digits string) bool {
	if len(digits) > 14 {
		return false
	}
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			d *= 3
		}
		sum += d
	}
	return sum%10 == 0
}
