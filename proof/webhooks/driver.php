<?php
require __DIR__ . '/verify.php';

$results = array_map(function (array $request): bool {
    try {
        verify($request['secret'], $request['headers'], base64_decode($request['body']));
        return true;
    } catch (InvalidArgumentException) {
        return false;
    }
}, json_decode(file_get_contents('php://stdin'), true));
echo json_encode($results);
