package cards_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/cards"
	"example.com/payonce/internal/ids"
)

// stripesTestCards are from Stripe's documentation, and two that other processors use.
var stripesTestCards = []string{
	"4242424242424242", "4000056655665556", // Visa
	"5555555555554444", "2223003122003222", "5200828282828210", "5105105105105100", // Mastercard
	"378282246310005", "371449635398431", // American Express
	"6011111111111117", "6011000990139424", "6011981111111113", // Discover
	"3056930009020004", "36227206271667", // Diners Club
	"6555900000604105",                                            // BCcard, DinaCard
	"3566002020360505",                                            // JCB
	"6200000000000005", "6200000000000047", "6205500000000000004", // UnionPay
	"4000002500001001", "5555552500001001", // Cartes Bancaires
	"4000050360000001", "5555050360000080", // eftpos
	"4000000000000002", "4000000000009995", "4000002500003155", "4000000000000259",
	"4222222222222", "30569309025904",
	"2200000000000053", "9792000000000003", "5060990000000008", "5085000000000007", // Mir, Troy, Verve, RuPay
}

func TestCardNumbersAreFound(t *testing.T) {
	t.Parallel()
	for _, number := range stripesTestCards {
		for _, form := range []string{
			"%s", "pm_%s", "order-%s", "card%s", "%sx", "order 7, card %s, exp 12/27", "(%s)", "%s 123", "1 %s", "n=%s",
			"\u00fc%s", "x1y2z3 %s",
		} {
			require.True(t, cards.NumberIn(fmt.Sprintf(form, number)), form, number)
		}
		require.True(t, cards.Possible(number))
	}
	for _, text := range []string{
		"4242 4242 4242 4242", "4242-4242-4242-4242", "4242 - 4242 - 4242 - 4242", "4242.4242.4242.4242",
		"4242\u00a04242\u00a04242\u00a04242", "4242_4242_4242_4242", "pm_4242-4242-4242-4242",
		"order-4242-4242-4242-4242", "4242 4242 4242 4242 123", "1 4242 4242 4242 4242", "card4242 4242 4242 4242",
		"3782 822463 10005", "3622-720627-1667", "6205 5000 0000 0000 004", "620550 0000000000004", "4222 222 222 222",
		"4242\u20134242\u20134242\u20134242", "4242\t4242\n4242\u30004242", "4242,4242:4242\u20034242", "4242, 4242, 4242, 4242",
		"4242\u200b4242\u200b4242\u200b4242", "3782-8224-6310-005", "+4242424242424242", "+4242 4242 4242 4242",
		"42424242 42424242", "424242 4242424242", "4242-42424242-4242", " (424242) 4242424242 ",
	} {
		require.True(t, cards.NumberIn(text), text)
		require.True(t, cards.Possible(text), text)
	}
}

func TestWhatIsNoCardPasses(t *testing.T) {
	t.Parallel()
	for why, text := range map[string]string{
		"Luhn's check fails":             "4242424242424241",
		"no brand has this prefix":       "7777777777777771",
		"milliseconds that pass Luhn":    "1700000000004",
		"nanoseconds":                    "1763999999999999996",
		"an id of a network, 19 digits":  "1993456789012345676",
		"a German article":               "4006381000093",
		"a German article, passes Luhn":  "4000000000006",
		"an article's case":              "14006381333938",
		"a telephone number":             "+4915123456783",
		"too short":                      "424242424242",
		"too long":                       "42424242424242424242",
		"part of a longer number":        "004242424242424242420",
		"part of an id":                  "a1b4242424242424242",
		"part of a hash":                 "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b8224242424242424242c",
		"a UUID of many digits":          "42424242-4242-4242-8242-424242424242",
		"a UUID with a card's groups":    "abcd4242-4242-4242-8003-abcdefabcdef",
		"a key with such a UUID":         "order-abcd4242-4242-4242-8003-abcdefabcdef",
		"sizes":                          "36 38 40 42 44 46 48",
		"prices":                         "300 200 150 100 75",
		"more prices, which pass Luhn":   "4000 42 4242 424244",
		"five prices, which pass Luhn":   "400 424 424 424 4240",
		"a date and a time":              "2026-11-25 22:30:00.123456",
		"a name":                         "Erika Mustermann",
		"a card's last four":             "Visa ending in 4242",
		"a payment method":               "pm_1MqLiJLkdIwHu7ixUEgbFdYF",
		"four groups that have no brand": "1234-5678-9012-3452",
		"odd groups among other words":   "order 424242 4242424242",
		"odd groups in another script":   "\u00fc 424242 4242424242",
		"empty":                          "",
	} {
		require.False(t, cards.NumberIn(text), "%s: %s", why, text)
	}
}

// TestNumberInID: an id that others make up has no digits of a card, wherever its letters are.
func TestNumberInID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"tok_1a4242424242424242", "a1b4242424242424242c3", "pm_4242-4242-4242-4242", "4242424242424242"} {
		require.True(t, cards.NumberInID(id), id)
	}
	for _, id := range []string{"", "pm_1MqLiJLkdIwHu7ixUEgbFdYF", "a1b42424242424242424242", "a1b4242424242424241"} {
		require.False(t, cards.NumberInID(id), id)
	}
}

// TestNoIdentifierIsTakenForACard tries a hundred thousand of each kind of identifier that clients and the service make.
func TestNoIdentifierIsTakenForACard(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 100_000 {
		at = at.Add(time.Duration(r.Int64N(int64(time.Hour))))
		sum := sha256.Sum256([]byte(fmt.Sprint(i)))
		random, err := uuid.NewRandomFromReader(strings.NewReader(string(sum[:])))
		require.NoError(t, err)
		for _, id := range []string{
			random.String(), hex.EncodeToString(sum[:]), ids.Keyed(ids.Order, "ten_1", fmt.Sprint(i)), fmt.Sprint(at.UnixMilli()), fmt.Sprint(at.UnixMicro()),
			fmt.Sprint(at.UnixNano()), fmt.Sprintf("key-%d-%d", at.UnixMilli(), i), at.Format("20060102150405"),
			fmt.Sprint((at.UnixMilli()-1288834974657)<<22 | int64(i)&0xfff), // a Snowflake id
			gtin13(400_000_000_000 + r.Int64N(40_000_000_000)),
		} {
			if cards.NumberIn(id) {
				require.Fail(t, "taken for a card", id)
			}
		}
	}
}

// gtin13 adds the check digit to twelve digits.
func gtin13(digits int64) string {
	text, sum := fmt.Sprintf("%012d", digits), 0
	for i, d := range text {
		sum += int(d-'0') * (1 + i%2*2)
	}
	return fmt.Sprintf("%s%d", text, (10-sum%10)%10)
}

func BenchmarkPossible(b *testing.B) {
	body := []byte(`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"metadata":{"a":"b"}}`)
	b.ReportAllocs()
	for b.Loop() {
		cards.Possible(body)
	}
}
