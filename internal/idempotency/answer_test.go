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

// TestAnswerIsStoredByteForByte, with the two headers that belong to it.
func TestAnswerIsStoredByteForByte(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  Answer
		headers string
	}{
		"WithBoth":    {Answer{201, "text/plain", "/v1/things/1", []byte("{}")}, "Content-Type: text/plain\r\nLocation: /v1/things/1\r\n"},
		"WithOne":     {Answer{402, "text/plain", "", []byte("no")}, "Content-Type: text/plain\r\n"},
		"WithNothing": {Answer{Status: 204, Body: []byte{}}, ""},
	} {
		e, err := encode(c.answer)
		require.NoError(t, err, name)
		require.Equal(t, c.headers, string(e.Headers), name)
		back, err := decodeAnswer(int(e.Version), int(e.Status), e.Headers, e.Body)
		require.NoError(t, err, name)
		require.Equal(t, c.answer, back, name)
	}
	none, err := encode(Answer{Status: 204})
	require.NoError(t, err)
	require.Equal(t, []byte{}, none.Body, "null is no answer")
	for _, smuggling := range []Answer{{ContentType: "a\r\nSet-Cookie: b"}, {Location: "a\nb"}, {Location: "a\x00"}} {
		_, err := encode(smuggling)
		require.ErrorContains(t, err, "line break")
	}
	for _, malformed := range []string{"Content-Type: a", "Content-Type\r\n", "\r\n"} {
		_, err := decodeAnswer(answerVersion, 200, []byte(malformed), nil)
		require.ErrorContains(t, err, "malformed", malformed)
	}
}

func TestStoredAnswerOfAnotherVersionIsNotGuessed(t *testing.T) {
	t.Parallel()
	_, err := decodeAnswer(answerVersion+1, 200, nil, nil)
	require.Error(t, err)
	_, err = decodeAnswer(answerVersion, 200, []byte("Set-Cookie: a=b\r\n"), nil)
	require.ErrorContains(t, err, "must not be replayed")
}
