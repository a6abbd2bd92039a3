-- Beside the database `tracking`, which the image makes: that of users and permissions.
CREATE DATABASE auth;
