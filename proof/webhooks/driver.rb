require "json"
require_relative "verify"

results = JSON.parse($stdin.read).map do |request|
  verify(request["secret"], request["headers"], request["body"].unpack1("m0"))
  true
rescue ArgumentError
  false
end
print JSON.generate(results)
