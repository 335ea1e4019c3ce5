package idempotency

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzAnswer: an answer that can be stored comes back as it was, byte for byte,
// and one that cannot is refused when it is stored, not when it is replayed.
func FuzzAnswer(f *testing.F) {
	f.Add(201, "application/json", "/v1/payments/pay_1", []byte(`{"id":"pay_1"}`))
	f.Add(402, "application/problem+json", "", []byte("\x00\xff"))
	f.Add(200, "text/plain; a=\": \"", ": ", []byte{})
	f.Add(200, "a\r\nSet-Cookie: b", "c\nd", []byte(nil))
	f.Fuzz(func(t *testing.T, status int, contentType, location string, body []byte) {
		status = 200 + (status%300+300)%300
		a := Answer{Status: status, ContentType: contentType, Location: location, Body: body}
		e, err := encode(a)
		if strings.ContainsAny(contentType+location, "\r\n\x00") {
			require.Error(t, err, "a header that could smuggle another")
			return
		}
		require.NoError(t, err)
		require.NotNil(t, e.Body, "null is no answer")
		back, err := decodeAnswer(int(e.Version), int(e.Status), e.Headers, e.Body)
		require.NoError(t, err)
		require.Equal(t, a.Status, back.Status)
		require.Equal(t, a.ContentType, back.ContentType)
		require.Equal(t, a.Location, back.Location)
		require.Equal(t, string(a.Body), string(back.Body))
	})
}

// FuzzStoredHeaders: whatever the row holds, it is read as what it says or not at
// all.
func FuzzStoredHeaders(f *testing.F) {
	for _, seed := range []string{"", "Content-Type: application/json\r\n", "Content-Type: a\r\nLocation: b\r\n",
		"Content-Type: a", "Set-Cookie: a\r\n", "Content-Type\r\n", "\r\n", "Location: \r\n\r\n", "location: a\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, headers []byte) {
		a, err := decodeAnswer(answerVersion, 200, headers, nil)
		if err != nil {
			return
		}
		again, err := a.encodeHeaders()
		if err != nil {
			return // a lone line break, which encodes to an error rather than to another header
		}
		back, err := decodeAnswer(answerVersion, 200, again, nil)
		require.NoError(t, err)
		require.Equal(t, a, back)
	})
}

func TestStoredAnswerOfAnotherVersionIsNotGuessed(t *testing.T) {
	t.Parallel()
	_, err := decodeAnswer(answerVersion+1, 200, nil, nil)
	require.Error(t, err)
	_, err = decodeAnswer(answerVersion, 200, []byte("Set-Cookie: a=b\r\n"), nil)
	require.ErrorContains(t, err, "must not be replayed")
}
